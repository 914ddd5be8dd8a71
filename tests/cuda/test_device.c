/* Reading into GPU memory, on a CUDA runtime that is host memory: what is queued when, on which stream, who waits for
 * what, and what happens when something fails. That the bytes are right, of every format: by_device.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <cJSON.h>

#include "cuda/fake_cudart.h"
#include "device/device.h"
#include "io/direct.h"
#include "unit/threads.h"
#include "unshard.h"

/* The runtime's and the fake's functions, as they are in the library that the loader finds. */
static struct {
	__typeof__(&fake_reset) reset;
	__typeof__(&fake_fail) let_fail;
	__typeof__(&fake_hold) hold;
	__typeof__(&fake_release) release;
	__typeof__(&fake_calls) calls;
	__typeof__(&fake_count) count;
	__typeof__(&fake_calls_of_thread) calls_of_thread;
	__typeof__(&fake_alive) alive;
	__typeof__(&fake_taken) taken;
	__typeof__(&fake_bus_id) bus_id;
	__typeof__(&cudaMalloc) malloc;
	__typeof__(&cudaFree) free;
	__typeof__(&cudaSetDevice) set_device;
	__typeof__(&cudaHostAlloc) host_alloc;
	__typeof__(&cudaFreeHost) free_host;
	__typeof__(&cudaMemcpyAsync) copy;
	__typeof__(&cudaStreamCreateWithFlags) stream_create;
	__typeof__(&cudaStreamDestroy) stream_destroy;
	__typeof__(&cudaEventSynchronize) event_synchronize;
} cuda;

static void find(void *library, const char *name, void *out)
{
	void *found = dlsym(library, name);

	if (!found)
		fail_msg("%s", name);
	memcpy(out, &found, sizeof(found));
}

static void find_all(void)
{
	void *library = dlopen("libcudart.so.12", RTLD_NOW);

	if (!library)
		fail_msg("%s", dlerror());
	find(library, "fake_reset", &cuda.reset);
	find(library, "fake_fail", &cuda.let_fail);
	find(library, "fake_hold", &cuda.hold);
	find(library, "fake_release", &cuda.release);
	find(library, "fake_calls", &cuda.calls);
	find(library, "fake_count", &cuda.count);
	find(library, "fake_calls_of_thread", &cuda.calls_of_thread);
	find(library, "fake_alive", &cuda.alive);
	find(library, "fake_taken", &cuda.taken);
	find(library, "fake_bus_id", &cuda.bus_id);
	find(library, "cudaMalloc", &cuda.malloc);
	find(library, "cudaFree", &cuda.free);
	find(library, "cudaSetDevice", &cuda.set_device);
	find(library, "cudaHostAlloc", &cuda.host_alloc);
	find(library, "cudaFreeHost", &cuda.free_host);
	find(library, "cudaMemcpyAsync", &cuda.copy);
	find(library, "cudaStreamCreateWithFlags", &cuda.stream_create);
	find(library, "cudaStreamDestroy", &cuda.stream_destroy);
	find(library, "cudaEventSynchronize", &cuda.event_synchronize);
}

/* -- the sample run's weights, and one tensor of them that takes many buffers -- */

enum { ROWS = 101, COLUMNS = 20, ROW_BYTES = COLUMNS * 4, LARGE_BYTES = ROWS * ROW_BYTES };
static const char large[] = "model.embed_tokens.weight";

enum { BUFFER_BYTES = 4096, MOST_TENSORS = 64 };

static struct fixture {
	unshard *u;
	unshard_tensors *weights; /* fp32: twice the size */
	size_t large;
} f;

static int setup(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	struct unshard_error err = { 0 };
	const struct unshard_tensor *t;

	(void)state;
	find_all();
	if (unshard_open(UNSHARD_GOLDEN "/run", &options, &f.u, &err) < 0 ||
	    unshard_tensors_open(f.u, "checkpoint-2", "weights-fp32", &f.weights, &err) < 0 ||
	    unshard_tensors_find(f.weights, large, NULL, &f.large, &err) < 0)
		fail_msg("%s", err.text);
	t = unshard_tensors_at(f.weights, f.large);
	assert_true(t->n_dims == 2 && t->shape[0] == ROWS && t->shape[1] == COLUMNS);
	assert_in_range(unshard_tensors_count(f.weights), 8, MOST_TENSORS);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unshard_tensors_close(f.weights);
	unshard_close(f.u);
	return 0;
}

static int reset(void **state)
{
	(void)state;
	cuda.reset(2);
	return 0;
}

static void *gpu_memory(size_t n_bytes)
{
	void *at;

	assert_int_equal(cuda.malloc(&at, n_bytes), cudaSuccess);
	memset(at, 0xee, n_bytes);
	return at;
}

static void right_bytes(size_t i, const uint64_t *lo, const uint64_t *len, const void *got, size_t n_bytes)
{
	uint8_t *want = malloc(n_bytes + 1);

	assert_int_equal(unshard_tensor_read(f.weights, i, lo, len, UNSHARD_AS_STORED, want, n_bytes, NULL), 0);
	assert_memory_equal(got, want, n_bytes);
	free(want);
}

static struct unshard_device_box box_of(size_t i, void *to)
{
	return (struct unshard_device_box){ UNSHARD_DEVICE_BOX_INIT,
					    i,
					    NULL,
					    NULL,
					    UNSHARD_AS_STORED,
					    to,
					    unshard_tensors_at(f.weights, i)->size_bytes };
}

/* A box for each tensor; their memory, one after the other. */
static size_t boxes_of_all(struct unshard_device_box *boxes, char *to)
{
	size_t i, n = unshard_tensors_count(f.weights);

	for (i = 0; i < n; i++) {
		boxes[i] = box_of(i, to);
		to += boxes[i].to_bytes;
	}
	return n;
}

static size_t size_of_all(void)
{
	size_t i, n = 0;

	for (i = 0; i < unshard_tensors_count(f.weights); i++)
		n += unshard_tensors_at(f.weights, i)->size_bytes;
	return n;
}

static unshard_device *open_with(int ordinal, struct unshard_device_options options)
{
	struct unshard_error err = { 0 };
	unshard_device *d;

	if (unshard_device_open(ordinal, &options, &d, &err) < 0)
		fail_msg("%s", err.text);
	return d;
}

static unshard_device *open_device(int ordinal, unsigned n_buffers, unsigned n_threads)
{
	return open_with(ordinal,
			 (struct unshard_device_options){ UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = BUFFER_BYTES,
							  .n_buffers = n_buffers, .n_threads = n_threads });
}

static unshard_transfer *begin(unshard_device *d, const struct unshard_device_box *boxes, size_t n, void *const *stream)
{
	struct unshard_error err = { 0 };
	unshard_transfer *t;

	if (unshard_device_read(d, f.weights, boxes, n, stream, &t, &err) < 0)
		fail_msg("%s", err.text);
	return t;
}

static void end(unshard_transfer *t)
{
	struct unshard_error err = { 0 };

	if (unshard_transfer_wait(t, &err) < 0)
		fail_msg("%s", err.text);
	unshard_transfer_free(t);
}

/* -- order -- */

/* With one thread that reads: while it reads for the next copy, all other buffers' copies are under way; and a
 * buffer is written again when its copy has taken place, not before. The caller's thread never is in CUDA. */
static void copies_are_under_way_while_the_next_is_read(void **state)
{
	enum { BUFFERS = 2, ROWS_A_BUFFER = BUFFER_BYTES / ROW_BYTES };
	char *to = gpu_memory(LARGE_BYTES);
	const size_t before = cuda.calls_of_thread(pthread_self());
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d = open_device(0, BUFFERS, 1);
	const struct fake_call *call;
	size_t i, n, queued = 0, copied = 0;

	(void)state;
	end(begin(d, &box, 1, NULL)); /* from here on there are all buffers */
	assert_int_equal(cuda.calls_of_thread(pthread_self()), before);
	cuda.reset(2);
	memset(to, 0, LARGE_BYTES);
	end(begin(d, &box, 1, NULL));
	right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
	call = cuda.calls(&n);
	for (i = 0; i < n; i++) {
		assert_int_not_equal(call[i].kind, FAKE_PINNED);
		if (call[i].kind == FAKE_QUEUED) {
			assert_ptr_equal(call[i].to, to + queued * ROWS_A_BUFFER * ROW_BYTES);
			if (queued >= BUFFERS)
				assert_int_equal(queued - copied, BUFFERS - 1);
			queued++;
		} else {
			assert_ptr_equal(call[i].to, to + copied * ROWS_A_BUFFER * ROW_BYTES);
			copied++;
		}
	}
	assert_int_equal(queued, (ROWS + ROWS_A_BUFFER - 1) / ROWS_A_BUFFER);
	assert_int_equal(copied, queued);
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

/* A transfer is read, and its copies are queued, by way of the first buffers while another one is being pinned. It is
 * over when the last one is: a program that then captures a graph has no other thread in CUDA. */
static void buffers_are_used_while_others_are_pinned(void **state)
{
	enum { BUFFERS = 4, ROWS_A_BUFFER = BUFFER_BYTES / ROW_BYTES };
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	struct unshard_error err = { 0 };
	unshard_transfer *t;
	unshard_device *d;
	size_t held;

	(void)state;
	for (held = 1; held < BUFFERS; held++) {
		cuda.reset(2);
		cuda.hold("cudaHostAlloc", (int)held + 1);
		memset(to, 0, LARGE_BYTES);
		d = open_device(0, BUFFERS, 3);
		t = begin(d, &box, 1, NULL);
		if (unshard_transfer_queued(t, NULL, &err) < 0)
			fail_msg("%s", err.text);
		while (cuda.count(FAKE_PINNED) < held) /* one was enough for the transfer */
			sched_yield();
		assert_int_equal(cuda.count(FAKE_PINNED), held);
		assert_int_equal(cuda.count(FAKE_QUEUED), (ROWS + ROWS_A_BUFFER - 1) / ROWS_A_BUFFER);
		cuda.release();
		end(t);
		assert_int_equal(cuda.count(FAKE_PINNED), BUFFERS);
		right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
		unshard_device_close(d);
		assert_int_equal(cuda.alive(), 0);
	}
	cuda.free(to);
}

/* The system lets only some buffers be pinned: they are enough. */
static void fewer_buffers_than_wanted(void **state)
{
	enum { BUFFERS = 4 };
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d;
	size_t n;

	(void)state;
	for (n = 1; n < BUFFERS; n++) {
		cuda.reset(2);
		cuda.let_fail("cudaHostAlloc", (int)n + 1, cudaErrorMemoryAllocation);
		memset(to, 0, LARGE_BYTES);
		d = open_device(0, BUFFERS, 3);
		end(begin(d, &box, 1, NULL));
		right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
		assert_int_equal(cuda.count(FAKE_PINNED), n);
		unshard_device_close(d);
		assert_int_equal(cuda.alive(), 0);
	}
	cuda.free(to);
}

/* A whole view in one transfer; small tensors share a buffer. No memory of the GPU is taken, and none that is managed.
 */
static void a_whole_view(void **state)
{
	const struct threads before = threads_now();
	struct unshard_device_box boxes[MOST_TENSORS];
	char *to = gpu_memory(size_of_all());
	size_t i, k, n = boxes_of_all(boxes, to), n_calls, shared = 0;
	const size_t taken = cuda.taken();
	unshard_device *d = open_device(1, 4, 3);
	const struct fake_call *call;
	cpu_set_t own;

	(void)state;
	end(begin(d, boxes, n, NULL));
	assert_int_equal(sched_getaffinity(0, sizeof(own), &own), 0);
	assert_true(library_threads_checked(&before, &own) >= 3);
	assert_int_equal(cuda.taken(), taken);
	for (i = 0; i < n; i++)
		right_bytes(i, NULL, NULL, boxes[i].to, boxes[i].to_bytes);
	call = cuda.calls(&n_calls);
	for (i = 0; i < n_calls; i++) {
		assert_int_equal(call[i].device, 1);
		for (k = i + 1; call[i].kind == FAKE_QUEUED && k < n_calls; k++)
			shared += call[k].kind == FAKE_QUEUED &&
				  (const char *)call[k].from - (const char *)call[i].from == 256;
	}
	assert_true(shared);
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

/* What the caller queued on its stream before comes before; what it waits for is the event. Nothing of ours is on
 * another stream, and no copy is waited for before the event is. */
static void on_the_callers_stream(void **state)
{
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d = open_device(0, 4, 2);
	const struct fake_call *call;
	void *stale, *event = NULL;
	cudaStream_t streams[3] = { NULL, NULL, cudaStreamLegacy }; /* the default stream is one too, by both names */
	unshard_transfer *t;
	size_t i, k, n;

	(void)state;
	assert_int_equal(cuda.host_alloc(&stale, LARGE_BYTES, 0), cudaSuccess);
	memset(stale, 0xdd, LARGE_BYTES);
	assert_int_equal(cuda.stream_create(&streams[1], cudaStreamNonBlocking), cudaSuccess);
	for (k = 0; k < 3; k++) {
		cuda.reset(2);
		assert_int_equal(cuda.copy(to, stale, LARGE_BYTES, cudaMemcpyHostToDevice, streams[k]), cudaSuccess);
		t = begin(d, &box, 1, (void *const *)&streams[k]);
		assert_int_equal(unshard_transfer_queued(t, &event, NULL), 0);
		assert_int_equal(cuda.event_synchronize(event), cudaSuccess);
		right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
		end(t);
		call = cuda.calls(&n);
		for (i = 0; i < n; i++)
			assert_ptr_equal(call[i].stream, streams[k]);
	}
	unshard_device_close(d);
	cuda.stream_destroy(streams[1]);
	cuda.free_host(stale);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

/* In each of the library's threads it would be another stream: nothing would wait for the copies. */
static void on_the_stream_of_each_thread_never(void **state)
{
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d = open_device(0, 4, 2);
	cudaStream_t stream = cudaStreamPerThread;
	struct unshard_error err = { 0 };
	unshard_transfer *t;

	(void)state;
	assert_int_equal(unshard_device_read(d, f.weights, &box, 1, (void *const *)&stream, &t, &err), -EINVAL);
	assert_non_null(strstr(err.text, "the stream is cudaStreamPerThread"));
	unshard_device_close(d);
	assert_int_equal(cuda.count(FAKE_QUEUED), 0);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

/* Tensor parallelism: each GPU gets its own columns, and rows, at the same time, and nothing of the other's. */
static void many_devices_at_once(void **state)
{
	enum { HALF = COLUMNS / 2 };
	const uint64_t lo[2][2] = { { 0, 0 }, { 0, HALF } }, len[2] = { ROWS, HALF };
	struct unshard_device_box box[2];
	unshard_transfer *t[2];
	unshard_device *d[2];
	const struct fake_call *call;
	size_t i, n, n_bytes[2] = { 0, 0 };
	int k;

	(void)state;
	for (k = 0; k < 2; k++) {
		d[k] = open_device(k, 3, 2);
		box[k] = (struct unshard_device_box){
			UNSHARD_DEVICE_BOX_INIT,     f.large,        lo[k], len, UNSHARD_AS_STORED,
			gpu_memory(LARGE_BYTES / 2), LARGE_BYTES / 2
		};
	}
	for (k = 0; k < 2; k++)
		t[k] = begin(d[k], &box[k], 1, NULL);
	for (k = 0; k < 2; k++) {
		end(t[k]);
		right_bytes(f.large, lo[k], len, box[k].to, LARGE_BYTES / 2);
	}
	call = cuda.calls(&n);
	for (i = 0; i < n; i++)
		if (call[i].kind == FAKE_COPIED)
			n_bytes[call[i].device] += call[i].n_bytes;
	for (k = 0; k < 2; k++) {
		assert_int_equal(n_bytes[k], LARGE_BYTES / 2);
		unshard_device_close(d[k]);
		cuda.free(box[k].to);
	}
	assert_int_equal(cuda.alive(), 0);
}

/* Nothing to read: an empty list, and an empty box. */
static void nothing(void **state)
{
	const uint64_t lo[2] = { 5, 0 }, len[2] = { 0, COLUMNS };
	const struct unshard_device_box box = { UNSHARD_DEVICE_BOX_INIT, f.large, lo, len, UNSHARD_BF16, NULL, 0 };
	unshard_device *d = open_device(0, 1, 1);
	void *event = NULL;
	unshard_transfer *t = begin(d, &box, 1, NULL);

	(void)state;
	end(begin(d, NULL, 0, NULL));
	assert_int_equal(unshard_transfer_queued(t, &event, NULL), 0);
	assert_non_null(event);
	end(t);
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
}

/* -- by which way bytes come from storage -- */

enum { LONG_ROWS = 1000, LONG_COLUMNS = 331, LONG_BYTES = LONG_ROWS * LONG_COLUMNS * 4, SHORT_BYTES = 12 };

/* A file of its own, whose data begin at an odd offset: a tensor that is long, another that is short. */
struct source {
	char dir[512], path[600];
	uint8_t *bytes; /* of the long one */
	int fd;
	unshard *u;
	unshard_tensors *list;
	size_t i, k; /* the long one's number, and the short one's */
};

static void source_open(struct source *s)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	char header[512];
	uint64_t n;
	size_t i;

	snprintf(s->dir, sizeof(s->dir), "%s/uns_device_XXXXXX", UNSHARD_BUILD);
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->path, sizeof(s->path), "%s/model.safetensors", s->dir);
	n = (uint64_t)snprintf(header, sizeof(header),
			       "{\"a\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
			       "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[%d,%d]}}",
			       LONG_ROWS, LONG_COLUMNS, LONG_BYTES, LONG_BYTES, LONG_BYTES + SHORT_BYTES);
	s->bytes = malloc(LONG_BYTES + SHORT_BYTES);
	for (i = 0; i < LONG_BYTES + SHORT_BYTES; i++)
		s->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	s->fd = open(s->path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(s->fd, &n, 8), 8);
	assert_int_equal(write(s->fd, header, n), n);
	assert_int_equal(write(s->fd, s->bytes, LONG_BYTES + SHORT_BYTES), LONG_BYTES + SHORT_BYTES);
	assert_int_equal(fsync(s->fd), 0);
	assert_int_equal(unshard_open(s->dir, &options, &s->u, NULL), 0);
	assert_int_equal(unshard_tensors_open(s->u, "", "weights", &s->list, NULL), 0);
	assert_int_equal(unshard_tensors_find(s->list, "a", NULL, &s->i, NULL), 0);
	assert_int_equal(unshard_tensors_find(s->list, "b", NULL, &s->k, NULL), 0);
}

static void source_close(struct source *s)
{
	unshard_tensors_close(s->list);
	unshard_close(s->u);
	close(s->fd);
	unlink(s->path);
	rmdir(s->dir);
	free(s->bytes);
}

static uint64_t figure(unshard *u, const char *name)
{
	unshard_file *file;
	char text[4096];
	cJSON *json;
	uint64_t value;
	ssize_t n;

	assert_int_equal(unshard_file_open(u, ".unshard/stats.json", NULL, &file, NULL, NULL), 0);
	n = unshard_pread(file, text, sizeof(text), 0, NULL);
	json = cJSON_ParseWithLength(text, (size_t)n);
	assert_non_null(cJSON_GetObjectItemCaseSensitive(json, name));
	value = (uint64_t)cJSON_GetObjectItemCaseSensitive(json, name)->valuedouble;
	cJSON_Delete(json);
	unshard_file_close(file);
	return value;
}

/* Drop the file from the page cache; false: this file system keeps it there. */
static bool drop(const struct source *s)
{
	const size_t n = LONG_BYTES / (size_t)sysconf(_SC_PAGESIZE);
	unsigned char in_core[LONG_BYTES / 4096 + 1];
	void *mapped;
	size_t i, kept = 0;

	posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
	mapped = mmap(NULL, LONG_BYTES, PROT_READ, MAP_SHARED, s->fd, 0);
	assert_int_equal(mincore(mapped, LONG_BYTES, in_core), 0);
	munmap(mapped, LONG_BYTES);
	for (i = 0; i < n; i++)
		kept += in_core[i] & 1;
	return !kept;
}

static bool can_be_read_past_the_cache(const struct source *s)
{
	int fd = open(s->path, O_RDONLY);
	struct uns_direct direct = { 0 };

	uns_direct_begin(&direct, fd);
	close(fd);
	return uns_direct_is_on(&direct);
}

/* Read a box of the long tensor; how many bytes came past the page cache. */
static uint64_t read_past_the_cache(const struct source *s, unshard_device *d, const uint64_t *lo, const uint64_t *len,
				    enum unshard_dtype dtype, void *to, size_t n_bytes)
{
	const struct unshard_device_box box = { UNSHARD_DEVICE_BOX_INIT, s->i, lo, len, dtype, to, n_bytes };
	const uint64_t before = figure(s->u, "direct_read_bytes");
	struct unshard_error err = { 0 };
	unshard_transfer *t;

	if (unshard_device_read(d, s->list, &box, 1, NULL, &t, &err) < 0)
		fail_msg("%s", err.text);
	end(t);
	return figure(s->u, "direct_read_bytes") - before;
}

/* Counted, not timed. What a file system cannot do counts as the page cache's. */
static void the_way_is_chosen_by_what_is_cached(void **state)
{
	static const struct {
		enum unshard_way way;
		bool cached, direct;
	} cases[] = {
		{ UNSHARD_WAY_SUITED, true, false }, { UNSHARD_WAY_SUITED, false, true },
		{ UNSHARD_WAY_CACHE, true, false },  { UNSHARD_WAY_CACHE, false, false },
		{ UNSHARD_WAY_DIRECT, true, true },  { UNSHARD_WAY_DIRECT, false, true },
	};
	const uint64_t lo[2] = { 3, 7 }, len[2] = { 990, 300 };
	char *to = gpu_memory(LONG_BYTES), *scratch = malloc(LONG_BYTES);
	uint64_t past, expected;
	unshard_device *d;
	struct source s;
	bool possible, dropped;
	size_t i, k;

	(void)state;
	source_open(&s);
	possible = can_be_read_past_the_cache(&s);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		d = open_with(0,
			      (struct unshard_device_options){ UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = 300000,
							       .n_buffers = 3, .n_threads = 2, .way = cases[i].way });
		dropped = !cases[i].cached && drop(&s);
		if (!dropped)
			assert_true(pread(s.fd, scratch, LONG_BYTES, 0) == LONG_BYTES);
		past = read_past_the_cache(&s, d, NULL, NULL, UNSHARD_AS_STORED, to, LONG_BYTES);
		expected =
			possible && cases[i].direct && (dropped || cases[i].way == UNSHARD_WAY_DIRECT) ? LONG_BYTES : 0;
		printf("way %d, %s: %d of %d bytes past the page cache\n", cases[i].way,
		       dropped ? "not cached" : "cached", (int)past, LONG_BYTES);
		assert_int_equal(past, expected);
		assert_memory_equal(to, s.bytes, LONG_BYTES);
		/* Columns: what is between them stays in the cache, unless that is not wanted at all. */
		drop(&s);
		past = read_past_the_cache(&s, d, lo, len, UNSHARD_AS_STORED, to, 990 * 300 * 4);
		assert_true(possible && cases[i].way == UNSHARD_WAY_DIRECT ? past >= 990 * 300 * 4 : past == 0);
		for (k = 0; k < 990; k++)
			assert_memory_equal(to + k * 1200, s.bytes + ((k + 3) * LONG_COLUMNS + 7) * 4, 1200);
		/* A cast, by way of memory that is not pinned. */
		drop(&s);
		read_past_the_cache(&s, d, NULL, NULL, UNSHARD_BF16, to, LONG_BYTES / 2);
		assert_int_equal(
			unshard_tensor_read(s.list, s.i, NULL, NULL, UNSHARD_BF16, scratch, LONG_BYTES / 2, NULL), 0);
		assert_memory_equal(to, scratch, LONG_BYTES / 2);
		unshard_device_close(d);
	}
	source_close(&s);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
	free(scratch);
}

/* Two ranks' rows of one tensor into two GPUs: each reads its own rows from storage, and no byte of the other's. Of
 * columns, which lie between the other's, no more than the tensor is read, and the rank's own alone cross the bus. */
static void each_gpu_reads_its_own(void **state)
{
	static const uint64_t lo[2][2][2] = { { { 0, 0 }, { 400, 0 } }, { { 0, 0 }, { 0, 131 } } },
			      len[2][2][2] = { { { 400, 331 }, { 600, 331 } }, { { 1000, 131 }, { 1000, 200 } } };
	const struct fake_call *call;
	size_t rank, columns, i, n, copied, size;
	uint64_t before, n_read;
	char *to = gpu_memory(LONG_BYTES);
	unshard_device *d[2] = { open_device(0, 3, 2), open_device(1, 3, 2) };
	struct source s;

	(void)state;
	source_open(&s);
	for (columns = 0; columns < 2; columns++)
		for (rank = 0; rank < 2; rank++) {
			cuda.reset(2);
			size = len[columns][rank][0] * len[columns][rank][1] * 4;
			before = figure(s.u, "source_read_bytes");
			read_past_the_cache(&s, d[rank], lo[columns][rank], len[columns][rank], UNSHARD_AS_STORED, to,
					    size);
			n_read = figure(s.u, "source_read_bytes") - before;
			if (columns)
				assert_in_range(n_read, size, LONG_BYTES);
			else
				assert_int_equal(n_read, size);
			call = cuda.calls(&n);
			for (i = 0, copied = 0; i < n; i++)
				if (call[i].kind == FAKE_COPIED) {
					assert_int_equal(call[i].device, rank);
					copied += call[i].n_bytes;
				}
			assert_int_equal(copied, size);
		}
	for (rank = 0; rank < 2; rank++)
		unshard_device_close(d[rank]);
	source_close(&s);
	cuda.free(to);
}

/* A shard that is written to while it is read: found by either way, on the descriptor that is read. */
static void a_change_is_found_by_each_way(void **state)
{
	char *to = gpu_memory(LONG_BYTES);
	struct unshard_device_box box;
	struct unshard_error err;
	unshard_transfer *t;
	unshard_device *d;
	struct source s;
	int way;

	(void)state;
	for (way = UNSHARD_WAY_SUITED; way <= UNSHARD_WAY_DIRECT; way++) {
		source_open(&s);
		drop(&s);
		d = open_with(0, (struct unshard_device_options){ UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = 300000,
								  .n_buffers = 2, .way = (enum unshard_way)way });
		read_past_the_cache(&s, d, NULL, NULL, UNSHARD_AS_STORED, to, LONG_BYTES); /* it is open now */
		assert_int_equal(pwrite(s.fd, "changed", 7, 5000), 7);
		assert_int_equal(fsync(s.fd), 0);
		drop(&s);
		box = (struct unshard_device_box){ UNSHARD_DEVICE_BOX_INIT, s.i, NULL,      NULL,
						   UNSHARD_AS_STORED,       to,  LONG_BYTES };
		err = (struct unshard_error){ 0 };
		assert_int_equal(unshard_device_read(d, s.list, &box, 1, NULL, &t, &err), 0);
		assert_int_equal(unshard_transfer_wait(t, &err), -ESTALE);
		assert_non_null(strstr(err.text, "model.safetensors: the file was written to"));
		unshard_transfer_free(t);
		unshard_device_close(d);
		source_close(&s);
	}
	cuda.free(to);
}

/* -- which memory and processors -- */

static void put(const char *dir, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
}

static uint64_t own_processors(void)
{
	cpu_set_t set;
	uint64_t bits = 0;
	int i;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (i = 0; i < 64; i++)
		bits |= (uint64_t)!!CPU_ISSET(i, &set) << i;
	return bits;
}

/* The kernel says which NUMA node the GPU is at: buffers come from there, threads run there. Where it says nothing,
 * or -1, nothing is done. Here CUDA names a device that is a folder of the test's. */
static void near_the_gpu(void **state)
{
	const uint64_t all = own_processors(), one = all & -all;
	char dir[40], bus_id[64], list[32], command[64];
	const struct {
		const char *bus_id, *node, *processors;
		bool near;
		uint64_t at;
	} cases[] = {
		{ NULL, "0\n", list, false, all },
		{ "0000:FF:1F.7", "0\n", list, false, all }, /* there is no such device */
		{ bus_id, "-1\n", list, false, all },
		{ bus_id, "", list, false, all },
		{ bus_id, "0\n", "", false, all },
		{ bus_id, "0\n", list, true, one },
		{ bus_id, "0\n", "1000-1023\n", true, all }, /* processors that this process may not use */
		{ bus_id, "1023\n", list, false, one },      /* no node: from anywhere */
	};
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	const struct fake_call *call;
	unshard_device *d;
	size_t i, k, n;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/uns_near_%d", (int)getpid()); /* in small letters, as the kernel's names */
	assert_int_equal(mkdir(dir, 0700), 0);
	snprintf(bus_id, sizeof(bus_id), "../../../..%s", dir);
	snprintf(list, sizeof(list), "%d,1022-1023\n", __builtin_ctzll(all));
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cuda.reset(1);
		cuda.bus_id(cases[i].bus_id);
		put(dir, "numa_node", cases[i].node);
		put(dir, "local_cpulist", cases[i].processors);
		d = open_device(0, 2, 3);
		end(begin(d, &box, 1, NULL));
		unshard_device_close(d);
		call = cuda.calls(&n);
		if (call[0].memory_policy < 0)
			printf("this kernel does not say from where memory comes\n");
		assert_int_equal(cuda.count(FAKE_PINNED), 2);
		for (k = 0; k < n; k++) {
			if (call[k].kind == FAKE_PINNED && call[k].memory_policy >= 0) {
				assert_int_equal(call[k].memory_policy == MPOL_PREFERRED, cases[i].near);
				assert_int_equal(call[k].memory_nodes, cases[i].near);
			}
			if (call[k].kind == FAKE_QUEUED && call[k].processors != cases[i].at)
				fail_msg("%zu: %llx, not %llx", i, (unsigned long long)call[k].processors,
					 (unsigned long long)cases[i].at);
		}
		assert_int_equal(own_processors(), all);
	}
	cuda.bus_id(NULL);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	cuda.free(to);
}

/* As many threads as processors that the process may use; twice as many buffers as there are threads at most. */
static void threads_are_no_more_than_processors(void **state)
{
	const struct unshard_device_options options = { UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = BUFFER_BYTES };
	cpu_set_t all, some;
	int n = 0, i;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&some);
	for (i = 0; i < CPU_SETSIZE; i++) {
		unshard_device *d;

		if (!CPU_ISSET(i, &all))
			continue;
		CPU_SET(i, &some);
		n++;
		assert_int_equal(sched_setaffinity(0, sizeof(some), &some), 0);
		d = open_with(0, options);
		assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
		assert_int_equal(d->opt.n_threads, n < 16 ? n : 16);
		assert_int_equal(d->opt.n_buffers, 32);
		unshard_device_close(d);
		if (n == 20)
			break;
	}
	assert_int_equal(cuda.alive(), 0);
}

/* -- no thread to be had -- */

static bool no_threads;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

/* Closing frees everything where no thread can begin. Opening and reading say so. */
static void without_threads(void **state)
{
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d = open_device(0, 4, 2), *second;
	struct unshard_error err = { 0 };
	unshard_transfer *t;

	(void)state;
	no_threads = true;
	assert_int_equal(unshard_device_read(d, f.weights, &box, 1, NULL, &t, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "no thread"));
	assert_int_equal(unshard_device_open(0, NULL, &second, &err), -EAGAIN);
	unshard_device_close(d);
	no_threads = false;
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

/* -- many transfers, one ring -- */

struct caller {
	unshard_device *d;
	char *to;
};

static void *read_some(void *arg)
{
	const struct caller *c = arg;
	struct unshard_device_box boxes[MOST_TENSORS];
	size_t n = boxes_of_all(boxes, c->to), k;

	for (k = 0; k < 3; k++) {
		memset(c->to, 0, size_of_all());
		end(begin(c->d, boxes, n, NULL));
	}
	return NULL;
}

static void by_many_threads(void **state)
{
	struct unshard_device_box boxes[MOST_TENSORS];
	unshard_device *d = open_device(0, 2, 3);
	struct caller caller[4];
	pthread_t thread[4];
	size_t i, k, n;

	(void)state;
	for (k = 0; k < 4; k++) {
		caller[k] = (struct caller){ d, gpu_memory(size_of_all()) };
		assert_int_equal(pthread_create(&thread[k], NULL, read_some, &caller[k]), 0);
	}
	for (k = 0; k < 4; k++) {
		pthread_join(thread[k], NULL);
		n = boxes_of_all(boxes, caller[k].to);
		for (i = 0; i < n; i++)
			right_bytes(i, NULL, NULL, boxes[i].to, boxes[i].to_bytes);
		cuda.free(caller[k].to);
	}
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
}

/* -- failures -- */

static const struct {
	const char *function;
	int error, code;
	const char *words;
} failures[] = {
	{ "cudaGetDeviceCount", cudaErrorInsufficientDriver, -ENODEV,
	  "driver is missing, or too old for libcudart.so.12" },
	{ "cudaGetDeviceCount", cudaErrorSystemDriverMismatch, -ENODEV,
	  "the NVIDIA driver cannot be used: an error of the fake" },
	{ "cudaGetDeviceCount", cudaErrorNoDevice, -ENODEV, "CUDA finds no GPU" },
	{ "cudaSetDevice", cudaErrorDevicesUnavailable, -EIO, "choosing the GPU" },
	{ "cudaStreamCreateWithFlags", cudaErrorMemoryAllocation, -ENOMEM, "out of memory" },
	{ "cudaHostAlloc", cudaErrorMemoryAllocation, -ENOMEM, "pinning memory" },
	{ "cudaEventCreateWithFlags", cudaErrorMemoryAllocation, -ENOMEM, "making an event" },
	{ "cudaMemcpyAsync", cudaErrorIllegalAddress, -EIO,
	  "copying: an illegal memory access was encountered (cudaErrorIllegalAddress)" },
	{ "cudaEventRecord", cudaErrorInvalidResourceHandle, -EIO, "copying" },
	{ "cudaEventSynchronize", cudaErrorIllegalAddress, -EIO, "copying" },
};

/* Everything that a program does with a device, until something fails. */
static int whole_way(char *to, struct unshard_error *err)
{
	const struct unshard_device_options options = { UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = BUFFER_BYTES,
							.n_buffers = 2, .n_threads = 2 };
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d;
	unshard_transfer *t;
	int code = unshard_device_open(0, &options, &d, err);

	if (code < 0)
		return code;
	code = unshard_device_read(d, f.weights, &box, 1, NULL, &t, err);
	if (code == 0) {
		code = unshard_transfer_wait(t, err);
		unshard_transfer_free(t);
	}
	unshard_device_close(d);
	return code;
}

/* Each call of each function fails once: with its code and sentence, or, where it does not matter, not at all; and
 * nothing is left, and no copy under way, either way. */
static void each_call_fails_once(void **state)
{
	char *to = gpu_memory(LARGE_BYTES);
	struct unshard_error err;
	size_t i, n_failed;
	int nth, code;

	(void)state;
	for (i = 0; i < sizeof(failures) / sizeof(*failures); i++) {
		for (nth = 1, n_failed = 0; nth <= 12; nth++) {
			cuda.reset(1);
			cuda.let_fail(failures[i].function, nth, failures[i].error);
			err = (struct unshard_error){ 0 };
			memset(to, 0xee, LARGE_BYTES);
			code = whole_way(to, &err);
			n_failed += code < 0;
			if (code == 0)
				right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
			else if (code != failures[i].code || err.code != code || !strstr(err.text, failures[i].words) ||
				 strncmp(err.text, "GPU 0: ", 7) != 0)
				fail_msg("%s %d: %d, %s", failures[i].function, nth, code, err.text);
			assert_int_equal(cuda.alive(), 0);
		}
		if (!n_failed)
			fail_msg("%s was never called", failures[i].function);
	}
	cuda.free(to);
}

/* A transfer that fails leaves the device as it was: the next one works. */
static void after_a_failure(void **state)
{
	char *to = gpu_memory(LARGE_BYTES);
	const struct unshard_device_box box = box_of(f.large, to);
	unshard_device *d = open_device(0, 2, 2);
	struct unshard_error err = { 0 }, again = { 0 };
	void *event = NULL;
	unshard_transfer *t;
	int k;

	(void)state;
	for (k = 0; k < 4; k++) {
		cuda.let_fail("cudaMemcpyAsync", 1 + k % 2, cudaErrorInvalidValue);
		t = begin(d, &box, 1, NULL);
		assert_int_equal(unshard_transfer_queued(t, &event, &err), -EIO);
		assert_int_equal(unshard_transfer_wait(t, &again), -EIO);
		assert_string_equal(err.text, again.text);
		assert_null(event);
		unshard_transfer_free(t);
	}
	end(begin(d, &box, 1, NULL));
	right_bytes(f.large, NULL, NULL, to, LARGE_BYTES);
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
	cuda.free(to);
}

static void which_gpu(void **state)
{
	struct unshard_error err = { 0 };
	unshard_device *d;

	(void)state;
	assert_int_equal(unshard_device_open(2, NULL, &d, &err), -ENODEV);
	assert_string_equal(err.text,
			    "GPU 2: CUDA finds 2 GPUs, numbered from 0; CUDA_VISIBLE_DEVICES may hide others");
	assert_int_equal(unshard_device_open(-1, NULL, &d, NULL), -ENODEV);
	cuda.reset(0);
	assert_int_equal(unshard_device_open(0, NULL, &d, NULL), -ENODEV);
	assert_int_equal(cuda.alive(), 0);
}

static void refused(void **state)
{
	static const struct unshard_device_options options[] = {
		{ .size = 0 },
		{ UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = 4095 },
		{ UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = UINT64_MAX / 2 },
		{ UNSHARD_DEVICE_OPTIONS_INIT, .way = UNSHARD_WAY_DIRECT + 1 },
	};
	char memory[LARGE_BYTES];
	const uint64_t lo[2] = { ROWS, 0 }, len[2] = { 1, 1 };
	struct unshard_device_box boxes[] = {
		box_of(f.large, NULL),   box_of(f.large, memory), box_of(f.large, memory),
		box_of(f.large, memory), box_of(f.large, memory),
	};
	const int codes[] = { -EINVAL, -EINVAL, -EINVAL, -EINVAL, -ENOTSUP };
	struct unshard_error err;
	unshard_transfer *t;
	unshard_device *d;
	size_t i, n;

	(void)state;
	for (i = 0; i < sizeof(options) / sizeof(*options); i++)
		assert_int_equal(unshard_device_open(0, &options[i], &d, NULL), -EINVAL);
	boxes[1].to_bytes--;
	boxes[2].lo = lo;
	boxes[2].len = len;
	boxes[3].i = unshard_tensors_count(f.weights);
	boxes[4].dtype = UNSHARD_I32;
	d = open_device(0, 1, 1);
	for (i = 0; i < sizeof(boxes) / sizeof(*boxes); i++) {
		err = (struct unshard_error){ 0 };
		if (unshard_device_read(d, f.weights, &boxes[i], 1, NULL, &t, &err) != codes[i] || !err.text[0])
			fail_msg("%zu: %s", i, err.text);
	}
	cuda.calls(&n);
	assert_int_equal(n, 1); /* the buffer was taken; nothing was copied */
	unshard_device_close(d);
}

/* A shard changes while it is read: the checkpoint's own sentence, through threads and pool. */
static void a_shard_that_changes(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	char dir[] = "/tmp/uns_device_XXXXXX", command[512];
	unshard_device *d = open_device(0, 2, 2);
	struct unshard_device_box box;
	struct unshard_error err = { 0 };
	unshard_tensors *list;
	unshard_transfer *t;
	unshard *u;
	void *to;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command), "cp -r %s/run/checkpoint-2 %s/ckpt", UNSHARD_GOLDEN, dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(unshard_open(dir, &options, &u, NULL), 0);
	assert_int_equal(unshard_tensors_open(u, "ckpt", "weights-fp32", &list, NULL), 0);
	snprintf(command, sizeof(command), "cd %s/ckpt/pytorch_model_fsdp_0 && truncate -s -1 *.distcp", dir);
	assert_int_equal(system(command), 0);
	to = gpu_memory(LARGE_BYTES);
	box = box_of(f.large, to);
	assert_int_equal(unshard_device_read(d, list, &box, 1, NULL, &t, &err), 0);
	assert_int_equal(unshard_transfer_wait(t, &err), -ESTALE);
	assert_non_null(strstr(err.text, ".distcp"));
	unshard_transfer_free(t);
	unshard_device_close(d);
	assert_int_equal(cuda.alive(), 0);
	unshard_tensors_close(list);
	unshard_close(u);
	cuda.free(to);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(copies_are_under_way_while_the_next_is_read, reset),
		cmocka_unit_test_setup(buffers_are_used_while_others_are_pinned, reset),
		cmocka_unit_test_setup(fewer_buffers_than_wanted, reset),
		cmocka_unit_test_setup(a_whole_view, reset),
		cmocka_unit_test_setup(on_the_callers_stream, reset),
		cmocka_unit_test_setup(many_devices_at_once, reset),
		cmocka_unit_test_setup(nothing, reset),
		cmocka_unit_test_setup(by_many_threads, reset),
		cmocka_unit_test_setup(each_call_fails_once, reset),
		cmocka_unit_test_setup(after_a_failure, reset),
		cmocka_unit_test_setup(which_gpu, reset),
		cmocka_unit_test_setup(refused, reset),
		cmocka_unit_test_setup(a_shard_that_changes, reset),
		cmocka_unit_test_setup(the_way_is_chosen_by_what_is_cached, reset),
		cmocka_unit_test_setup(a_change_is_found_by_each_way, reset),
		cmocka_unit_test_setup(each_gpu_reads_its_own, reset),
		cmocka_unit_test_setup(near_the_gpu, reset),
		cmocka_unit_test_setup(threads_are_no_more_than_processors, reset),
		cmocka_unit_test_setup(without_threads, reset),
		cmocka_unit_test_setup(on_the_stream_of_each_thread_never, reset),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
