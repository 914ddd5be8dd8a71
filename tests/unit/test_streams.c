/* What storage is asked for ahead of sequential readers: what they then read, once, not much further, and
 * nothing for those who read a header or here and there. Storage answers nothing at once, and keeps nothing unless a
 * test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "engine/backing.h"
#include "engine/source_read.h"
#include "engine/streams.h"
#include "io/memory_left.h"
#include "io/pages.h"

enum {
	MiB = 1 << 20,
	PAGE = 4096,
	SHARDS = 8,
	ROWS = 32768,
	COLUMNS = 65536,
	SHARD_MiB = 512,
	PAGES = SHARD_MiB * (MiB / PAGE) + 1,
	REQUEST = MiB,
	BUDGET_MiB = 64,
	ROOM_MiB = 48, /* for pages, where memory is short */
};

/* ThreadSanitizer finds in long reads what it finds in the short ones of other tests, with the same threads; its shadow
 * of so much memory takes seconds. */
static bool has_shorter_tests(void)
{
#ifdef __SANITIZE_THREAD__
	return !getenv("UNSHARD_LONG");
#else
	return false;
#endif
}

/* Under a sanitizer one trial, that of short requests, stands for the others, which run there with UNSHARD_LONG. */
static bool is_left_to_one_trial(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return !getenv("UNSHARD_LONG");
#else
	return false;
#endif
}

/* -- storage -- */

static struct {
	ino_t ino;
	unsigned char asked[PAGES]; /* how often */
	_Atomic bool read[PAGES];
	_Atomic off_t end; /* of the last read of a page that was not read before */
	uint32_t came[PAGES]; /* as the how manieth into a page cache that has little room; 0 = never */
} shard[SHARDS];
static uint64_t asked_bytes, asked_calls, read_unasked_bytes;
static _Atomic unsigned read_elsewhere; /* such reads that did not begin where the last one ended */
static bool keeps; /* what was read is in the page cache */
static bool has_trials; /* so is what a trial would read past it */

/* The page cache, if it has little room: the page that came first goes first. */
static struct {
	uint32_t room, came, again; /* pages; room 0: no more is known of it */
	uint64_t memory_left;
} memory;
static bool source_in_memory;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER; /* pieces of one read come by several threads */

uint64_t __wrap_uns_memory_left(const char *at);
uint64_t __wrap_uns_memory_left(const char *at)
{
	assert_string_equal(at, "");
	return memory.memory_left;
}

bool __wrap_uns_mount_in_memory(unsigned dev_major, unsigned dev_minor);
bool __wrap_uns_mount_in_memory(unsigned dev_major, unsigned dev_minor)
{
	(void)dev_major, (void)dev_minor;
	return source_in_memory;
}

static bool is_there(size_t i, off_t page)
{
	return shard[i].came[page] && memory.came - shard[i].came[page] < memory.room;
}

static bool is_kept(size_t i, off_t page)
{
	bool there;

	pthread_mutex_lock(&memory_lock);
	there = memory.room && is_there(i, page);
	pthread_mutex_unlock(&memory_lock);
	return there;
}

static void bring(size_t i, off_t at, size_t len)
{
	off_t page;

	pthread_mutex_lock(&memory_lock);
	for (page = at / PAGE; memory.room && page * PAGE < at + (off_t)len; page++) {
		if (is_there(i, page))
			continue;
		memory.again += shard[i].came[page] != 0;
		shard[i].came[page] = ++memory.came;
	}
	pthread_mutex_unlock(&memory_lock);
}

static struct uns_engine *engine;

static bool is_tried_past_it(void)
{
	enum uns_way trying = UNS_WAY_CACHE;

	uns_ways_chosen(&engine->ways, engine->ways.storage[0].dev, &trying);
	return trying == UNS_WAY_LONG;
}

static size_t shard_of(int fd)
{
	struct stat st;
	size_t i;

	assert_int_equal(fstat(fd, &st), 0);
	for (i = 0; i < SHARDS; i++)
		if (shard[i].ino == st.st_ino)
			return i;
	fail_msg("not a shard");
	return 0;
}

/* Time stands still, but for what storage takes: so much for each of its requests, and for those of more than 128 KiB
 * something else. */
static _Atomic int64_t taken_ns;
static int64_t short_ns, long_ns;
static _Atomic unsigned n_requests, n_direct;
enum { SHORT_BYTES = 128 << 10 };

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
	static _Atomic int64_t began_s;
	const int64_t ns = taken_ns;

	if (__real_clock_gettime(id, out) < 0)
		return -1;
	if (id != CLOCK_MONOTONIC)
		return 0;
	if (!began_s)
		began_s = out->tv_sec + 3600; /* what threads wait for does not come */
	*out = (struct timespec){ began_s + ns / 1000000000, ns % 1000000000 };
	return 0;
}

static void request(size_t len)
{
	n_requests++;
	taken_ns += len > SHORT_BYTES ? long_ns : short_ns;
}

/* No test asks for what was read. A byte of each page shows ThreadSanitizer who writes where; its shadow memory of all
 * bytes takes seconds. */
static void put_bytes(void *to, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += PAGE)
		((uint8_t *)to)[i] = 0;
}

/* The kernel reads into the page cache by requests of 128 KiB. */
static void answer(int fd, size_t len, off_t at)
{
	const size_t i = shard_of(fd);
	size_t done;

	if (fcntl(fd, F_GETFL) & O_DIRECT) {
		n_direct++;
		request(len);
		return;
	}
	for (done = 0; done < len; done += SHORT_BYTES)
		if (!shard[i].asked[(at + (off_t)done) / PAGE])
			request(SHORT_BYTES);
}

int __wrap_posix_fadvise64(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise64(int fd, off_t at, off_t len, int advice)
{
	size_t i = shard_of(fd);
	off_t page;

	assert_int_equal(advice, POSIX_FADV_WILLNEED);
	assert_true(len > 0 && len <= MiB);
	for (page = at / PAGE; page * PAGE < at + len; page++)
		shard[i].asked[page]++;
	bring(i, at, (size_t)len);
	asked_bytes += (uint64_t)len;
	asked_calls++;
	request((size_t)len);
	return 0;
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *to, int n, off_t at, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *to, int n, off_t at, int flags)
{
	const size_t i = shard_of(fd), len = to[0].iov_len;
	off_t page;

	(void)flags;
	assert_int_equal(n, 1);
	for (page = at / PAGE; keeps && page * PAGE < at + (off_t)len; page++)
		if (!shard[i].read[page])
			break;
	if (is_kept(i, (at + (off_t)len - 1) / PAGE)) {
		put_bytes(to[0].iov_base, len);
		return (ssize_t)len;
	}
	if (keeps && page * PAGE >= at + (off_t)len) {
		put_bytes(to[0].iov_base, len);
		return (ssize_t)len;
	}
	errno = EAGAIN;
	return -1;
}

bool __wrap_uns_pages_cached(int fd, uint64_t at, uint64_t len, uint64_t *cached);
bool __wrap_uns_pages_cached(int fd, uint64_t at, uint64_t len, uint64_t *cached)
{
	shard_of(fd);
	*cached = has_trials && is_tried_past_it() ? (at + len - 1) / PAGE - at / PAGE + 1 : 0;
	return true;
}

ssize_t __wrap_preadv64(int fd, const struct iovec *to, int n, off_t at);
ssize_t __wrap_preadv64(int fd, const struct iovec *to, int n, off_t at)
{
	size_t len = 0;
	int k;

	for (k = 0; k < n; k++) {
		put_bytes(to[k].iov_base, to[k].iov_len);
		len += to[k].iov_len;
	}
	answer(fd, len, at);
	return (ssize_t)len;
}

ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t at)
{
	size_t i = shard_of(fd);
	off_t page;

	for (page = at / PAGE; page * PAGE < at + (off_t)len; page++)
		if (!shard[i].asked[page])
			__atomic_add_fetch(&read_unasked_bytes, PAGE, __ATOMIC_RELAXED);
	bring(i, at, len);
	answer(fd, len, at);
	if (!shard[i].read[(at + (off_t)len - 1) / PAGE]) {
		read_elsewhere += shard[i].end != at;
		shard[i].end = at + (off_t)len;
	}
	for (page = at / PAGE; page * PAGE < at + (off_t)len; page++)
		shard[i].read[page] = true;
	put_bytes(buf, len);
	return (ssize_t)len;
}

/* The same shards as objects of a store, if they are `remote`: threads of its own fetch what is asked for. */
static struct {
	bool remote;
	uint64_t bytes, calls;
} objects;

bool __wrap_uns_root_is_remote(const struct uns_root *of);
bool __wrap_uns_root_is_remote(const struct uns_root *of)
{
	(void)of;
	return objects.remote;
}

bool __wrap_uns_fd_will_read(int fd, uint64_t at, uint64_t end);
bool __wrap_uns_fd_will_read(int fd, uint64_t at, uint64_t end)
{
	const size_t i = shard_of(fd);

	if (!objects.remote)
		return false;
	for (objects.bytes += end - at, objects.calls++; at < end; at += PAGE)
		shard[i].asked[at / PAGE] = 1;
	return true;
}

/* -- a tensor of 4 GiB in 4 x 2 boxes, each in a file that has no blocks -- */

static char dir[64];
static struct uns_root *root;
static struct uns_catalog *cat;
static struct uns_backing *backing;
static struct uns_arena arena;

static void add_shard(size_t i, uint64_t lo[2], uint64_t len[2])
{
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .rank = (int32_t)i,
				   .offset_bytes = 100,
				   .length_bytes = len[0] * len[1] * 2,
				   .box = &(struct uns_box){ 2, { lo[0], lo[1] }, { len[0], len[1] } } };
	char name[32], path[128];
	struct stat st;
	int fd;

	snprintf(name, sizeof(name), "shard-%zu", i);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(piece.offset_bytes + piece.length_bytes)), 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	shard[i].ino = st.st_ino;
	assert_int_equal(uns_catalog_add_file(cat, root, name, &piece.file, NULL), 0);
	assert_int_equal(uns_catalog_add_piece(cat, &piece, NULL), 0);
}

static int setup(void **state)
{
	struct uns_engine_options options = { .n_threads = 4, .ahead_bytes = BUDGET_MiB * (uint64_t)MiB };
	struct uns_tensor t = { .name = "w",
				.key = "w",
				.root = "",
				.dtype = UNS_BF16,
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE,
				.shape = { .n = 2, .dim = { ROWS, COLUMNS } } };
	uint64_t len[2] = { ROWS / 4, COLUMNS / 2 };
	uint32_t id;
	size_t i;

	(void)state;
	memset(shard, 0, sizeof(shard));
	keeps = has_trials = source_in_memory = false;
	memory = (typeof(memory)){ .memory_left = UINT64_MAX };
	asked_bytes = asked_calls = read_unasked_bytes = 0;
	read_elsewhere = 0;
	arena = (struct uns_arena)UNS_ARENA_INIT;
	strcpy(dir, "/tmp/unshard-streams-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &cat, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(cat, &t, &id, NULL), 0);
	for (i = 0; i < SHARDS; i++)
		add_shard(i, (uint64_t[2]){ i / 2 * len[0], i % 2 * len[1] }, len);
	options.cache_dir = dir;
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	assert_int_equal(uns_engine_new(&options, &engine, NULL), 0);
	assert_int_equal(uns_backing_new(engine, cat, &backing, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	char path[128];
	size_t i;

	(void)state;
	uns_backing_free(backing);
	uns_engine_free(engine);
	uns_catalog_free(cat);
	uns_root_close(root);
	uns_arena_fini(&arena);
	for (i = 0; i < SHARDS; i++) {
		snprintf(path, sizeof(path), "%s/shard-%zu", dir, i);
		unlink(path);
	}
	return rmdir(dir);
}

/* -- readers -- */

/* Of the tensor's first MiB. */
static struct uns_layout file_of_MiB(uint64_t many, enum uns_dtype out)
{
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_layout layout;

	uns_layout_literal(&b, "a header", 8);
	uns_layout_tensor(&b, cat->tensors, 0, many * MiB / 2, out);
	assert_int_equal(uns_layout_build(&b, cat, &layout, NULL), 0);
	return layout;
}

static struct uns_layout file_of(enum uns_dtype out)
{
	return file_of_MiB((uint64_t)ROWS * COLUMNS * 2 / MiB, out);
}

/* As the session does it. */
static void read_at(struct uns_streams *streams, const struct uns_layout *layout, uint64_t at, size_t len)
{
	static uint8_t buf[REQUEST];

	const struct uns_reading reading = uns_streams_read(streams, backing, layout, at, len);

	assert_int_equal(uns_read_by(reading.way, backing, layout, buf, len, at, NULL),
			 (ssize_t)uns_u64_min(len, layout->size_bytes - at));
	uns_streams_read_end(backing, &reading, len);
}

static unsigned most_asked(void)
{
	unsigned most = 0;
	size_t i, page;

	for (i = 0; i < SHARDS; i++)
		for (page = 0; page < PAGES; page++)
			most = shard[i].asked[page] > most ? shard[i].asked[page] : most;
	return most;
}

/* Requests of one reader come in any order within what the kernel reads ahead. */
static void read_in_order(struct uns_streams *streams, const struct uns_layout *layout, uint64_t from, unsigned n)
{
	static const unsigned order[] = { 1, 0, 3, 2 };
	unsigned i;

	for (i = 0; i < n; i++)
		read_at(streams, layout, from + (uint64_t)(i / 4 * 4 + order[i % 4]) * REQUEST, REQUEST);
}

/* 4 MiB, as the kernel reads around a touched page, then elsewhere. */
static void read_here_and_there(struct uns_streams *streams, const struct uns_layout *layout)
{
	unsigned i;

	for (i = 1; i < 5 * UNS_STREAMS; i++)
		read_in_order(streams, layout, (uint64_t)(i * 37 % 64) * 64 * MiB, 4);
}

static void asks_for_what_is_then_read(void **state)
{
	static const enum uns_dtype types[] = { UNS_BF16, UNS_F32 };
	const unsigned n = has_shorter_tests() ? 32 : 128;
	struct uns_streams streams;
	uint64_t begun;
	size_t i;

	for (i = 0; i < 2; i++) {
		struct uns_layout layout = file_of(types[i]);
		uint64_t served = types[i] == UNS_F32 ? 2 : 1; /* bytes for one that is stored */

		uns_streams_init(&streams);
		read_in_order(&streams, &layout, 0, 16);
		begun = read_unasked_bytes;
		read_in_order(&streams, &layout, 16 * MiB, n - 16);
		assert_int_equal(read_unasked_bytes, begun);
		assert_true(most_asked() <= 2); /* where one request ends and another begins */
		assert_true(asked_bytes <= (n + BUDGET_MiB) * (uint64_t)MiB / served);
		uns_streams_fini(&streams, engine);
		teardown(state);
		setup(state);
	}
}

/* Where each request takes long, enough has to be under way: 16 requests of 8 MiB for one reader. Readers share what
 * memory there is. */
static void asks_an_object_store_for_128_MiB_ahead_and_two_readers_for_96_each(void **state)
{
	enum { READ_MiB = 128 }; /* by each */
	static const uint64_t windows_MiB[] = { 128, 96 };
	struct uns_streams streams[2];
	uint64_t before;
	unsigned n, i;

	(void)state;
	if (has_shorter_tests())
		return;
	for (n = 1; n <= 2; n++) {
		struct uns_layout layout;

		objects.remote = true;
		teardown(state);
		setup(state);
		objects.bytes = 0;
		layout = file_of(UNS_BF16);
		for (i = 0; i < n; i++)
			uns_streams_init(&streams[i]);
		for (i = 0; i < n; i++)
			read_in_order(&streams[i], &layout, i * (uint64_t)1024 * MiB, 4);
		assert_int_equal(objects.bytes, 0); /* for what a touched page brings */
		for (i = 0; i < n; i++)
			read_in_order(&streams[i], &layout, (i * (uint64_t)1024 + 4) * MiB, 12);
		assert_true(objects.bytes >= n * 32 * (uint64_t)MiB);
		before = read_unasked_bytes;
		for (i = 0; i < n; i++)
			read_in_order(&streams[i], &layout, (i * (uint64_t)1024 + 16) * MiB, READ_MiB - 16);
		assert_int_equal(read_unasked_bytes, before);
		assert_true(objects.bytes <= n * (READ_MiB + windows_MiB[n - 1]) * (uint64_t)MiB + 32 * (uint64_t)MiB);
		assert_true(objects.bytes >= n * (READ_MiB + windows_MiB[n - 1] - 24) * (uint64_t)MiB);
		assert_int_equal(asked_calls, 0);
		for (i = 0; i < n; i++)
			uns_streams_fini(&streams[i], engine);
		assert_int_equal(engine->object_streams, 0);
	}
	objects.remote = false;
}

static void asks_nothing_for_a_header_or_for_reads_here_and_there(void **state)
{
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams;
	unsigned i;

	(void)state;
	uns_streams_init(&streams);
	for (i = 0; i < 4; i++)
		read_at(&streams, &layout, (uint64_t)i * REQUEST, REQUEST);
	read_at(&streams, &layout, layout.size_bytes - 100, 200);
	read_here_and_there(&streams, &layout);
	assert_int_equal(asked_bytes, 0);
	uns_streams_fini(&streams, engine);
}

/* What a request was overtaken by is read before it. The page cache has it then. */
static void reads_each_shard_from_front_to_back(void **state)
{
	static const enum uns_way ways[] = { UNS_WAY_CACHE, UNS_WAY_TURNS };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct uns_layout layout = file_of(UNS_BF16);
		struct uns_streams streams;

		engine->way = ways[i];
		keeps = true;
		uns_streams_init(&streams);
		read_in_order(&streams, &layout, 0, 64);
		assert_int_equal(asked_bytes == 0, ways[i] == UNS_WAY_TURNS);
		assert_int_equal(read_elsewhere == 0, ways[i] == UNS_WAY_TURNS);
		uns_streams_fini(&streams, engine);
		teardown(state);
		setup(state);
	}
}

static enum uns_way kept;

static void keep(void *ctx, uint64_t dev, enum uns_way way)
{
	(void)ctx, (void)dev;
	kept = way;
}

static bool recall(void *ctx, uint64_t dev, enum uns_way *out)
{
	(void)ctx, (void)dev;
	*out = kept;
	return kept != UNS_WAY_N;
}

static void begin_to_find(int64_t of_short_ns, int64_t of_long_ns)
{
	short_ns = of_short_ns;
	long_ns = of_long_ns;
	n_direct = 0;
	engine->finds_way = true;
	engine->memory = (struct uns_ways_memory){ recall, keep, NULL };
	uns_backing_free(backing);
	assert_int_equal(uns_backing_new(engine, cat, &backing, NULL), 0);
	backing->is_far = false;
	atomic_store(&backing->call_bytes, SHORT_BYTES);
}

/* Reads 256 MiB, in which a way is found by four trials of 40 MiB, and then 64 MiB. Returns the requests for these. */
static unsigned find_way(int64_t of_short_ns, int64_t of_long_ns)
{
	enum { SEARCH = 256 };
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams;
	unsigned before;

	begin_to_find(of_short_ns, of_long_ns);
	uns_streams_init(&streams);
	read_in_order(&streams, &layout, 0, SEARCH);
	before = n_requests;
	read_in_order(&streams, &layout, SEARCH * (uint64_t)MiB, 64);
	uns_streams_fini(&streams, engine);
	return n_requests - before;
}

static bool takes_direct(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/shard-0", dir);
	fd = open(path, O_RDONLY | O_DIRECT);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Each request takes as long, however many bytes it is for. */
static void finds_that_few_long_requests_are_faster(void **state)
{
	(void)state;
	if (is_left_to_one_trial())
		return;
	if (!takes_direct())
		skip();
	kept = UNS_WAY_N;
	assert_true(find_way(1000000, 1000000) <= 2 * 64 + 2);
	assert_int_equal(kept, UNS_WAY_LONG);
}

/* Storage that is bad at long requests gets few of them. */
static void finds_that_short_requests_are_faster(void **state)
{
	(void)state;
	kept = UNS_WAY_N;
	assert_true(find_way(200000, 50000000) >= 6 * 64);
	assert_int_equal(kept, UNS_WAY_CACHE);
	assert_true(n_direct <= 16);
}

/* An eighth faster is not enough, and what was found before is not looked for again. */
static void keeps_to_the_page_cache_and_to_what_was_found(void **state)
{
	if (is_left_to_one_trial())
		return;
	kept = UNS_WAY_N;
	find_way(1000000, 3500000);
	assert_int_equal(kept, UNS_WAY_CACHE);
	teardown(state);
	setup(state);
	find_way(1000000, 1000000);
	assert_int_equal(n_direct, 0);
}

/* While a trial of a larger file has come to what is past the page cache, where that is faster. */
static void finds_nothing_by_a_small_file_or_by_reads_here_and_there(void **state)
{
	struct uns_layout small = file_of_MiB(500, UNS_BF16), large = file_of(UNS_BF16);
	struct uns_streams streams[2];
	unsigned i;

	(void)state;
	if (has_shorter_tests())
		return;
	kept = UNS_WAY_N;
	begin_to_find(1000000, 1000000);
	uns_streams_init(&streams[0]);
	uns_streams_init(&streams[1]);
	for (i = 0; !is_tried_past_it(); i++) {
		assert_true(i < 64);
		read_at(&streams[1], &large, i * (uint64_t)REQUEST, REQUEST);
	}
	uns_streams_fini(&streams[1], engine); /* its window is left for the others */
	uns_streams_init(&streams[1]);
	read_in_order(&streams[0], &small, 0, 128);
	read_here_and_there(&streams[1], &large);
	assert_int_equal(n_direct, 0);
	assert_int_equal(kept, UNS_WAY_N);
	uns_streams_fini(&streams[0], engine);
	uns_streams_fini(&streams[1], engine);
}

/* What a mapped file, or a slice of a tensor, takes here and there comes with what is around it. */
static void only_reads_from_front_to_back_go_past_the_page_cache(void **state)
{
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams;

	(void)state;
	kept = UNS_WAY_LONG;
	begin_to_find(1000000, 1000000);
	uns_streams_init(&streams);
	read_here_and_there(&streams, &layout);
	assert_int_equal(n_direct, 0);
	read_in_order(&streams, &layout, 0, 64);
	assert_true(n_direct > 0 || !takes_direct());
	assert_int_equal(asked_bytes, 0);
	uns_streams_fini(&streams, engine);
}

/* To read past the page cache what is in it would be the fastest way of all. */
static void finds_nothing_by_what_is_in_the_page_cache(void **state)
{
	(void)state;
	if (has_shorter_tests())
		return;
	kept = UNS_WAY_N;
	has_trials = true;
	find_way(1000000, 1000000);
	assert_int_equal(kept, UNS_WAY_N);
}

/* Whatever was remembered. */
static void finds_nothing_by_what_has_no_storage(void **state)
{
	(void)state;
	if (has_shorter_tests())
		return;
	source_in_memory = true;
	kept = UNS_WAY_LONG;
	find_way(1000000, 1000000);
	assert_int_equal(n_direct, 0);
}

/* Its requests are made in another place, and have no other way. */
static void finds_nothing_for_an_object_store(void **state)
{
	struct uns_layout layout;
	struct uns_streams streams;

	objects.remote = true;
	teardown(state);
	setup(state);
	kept = UNS_WAY_N;
	begin_to_find(1000000, 1000000);
	layout = file_of(UNS_BF16);
	uns_streams_init(&streams);
	read_in_order(&streams, &layout, 0, 64);
	assert_int_equal(engine->ways.n, 0);
	assert_int_equal(n_direct, 0);
	uns_streams_fini(&streams, engine);
	objects.remote = false;
}

struct reader {
	struct uns_turns *turns;
	struct uns_turn *turn;
	uint64_t off;
	uint64_t *order;
	unsigned *n;
	pthread_t thread;
};

static bool always(void *ctx)
{
	(void)ctx;
	return true;
}

static void *read_when_it_is_ones_turn(void *ctx)
{
	const struct reader *r = ctx;

	uint64_t next;

	uns_turn_take(r->turns, r->turn, r->off, always, NULL, &next);
	r->order[(*r->n)++] = r->off;
	uns_turn_pass(r->turns, r->turn, r->off);
	return NULL;
}

static void wait_for_waiting(struct uns_turns *turns, const struct uns_turn *turn, unsigned many)
{
	unsigned waiting = 0;

	while (waiting < many) {
		sched_yield();
		pthread_mutex_lock(&turns->lock);
		waiting = turn->n_waiting;
		pthread_mutex_unlock(&turns->lock);
	}
}

static void who_wants_what_comes_first_is_next(void **state)
{
	static const uint64_t offs[] = { 300, 100, 400, 200 };
	enum { N = 4 };
	struct reader reader[N];
	struct uns_turn turn = { 0 };
	struct uns_turns turns;
	uint64_t order[N] = { 0 }, next;
	unsigned n = 0, i;

	(void)state;
	uns_turns_init(&turns);
	assert_true(uns_turn_take(&turns, &turn, 0, always, NULL, &next));
	assert_int_equal(next, 0);
	for (i = 0; i < N; i++) {
		reader[i] = (struct reader){ &turns, &turn, offs[i], order, &n, 0 };
		assert_int_equal(pthread_create(&reader[i].thread, NULL, read_when_it_is_ones_turn, &reader[i]), 0);
	}
	wait_for_waiting(&turns, &turn, N);
	uns_turn_pass(&turns, &turn, 50);
	for (i = 0; i < N; i++)
		pthread_join(reader[i].thread, NULL);
	for (i = 0; i < N; i++)
		assert_int_equal(order[i], 100 * (i + 1));
	assert_true(uns_turn_take(&turns, &turn, 0, always, NULL, &next));
	assert_int_equal(next, 400);
	uns_turn_pass(&turns, &turn, 0);
	uns_turns_fini(&turns);
}

static void *read_in_turn(void *ctx)
{
	static uint8_t buf[4096];
	const struct uns_how how = { UNS_WAY_TURNS, .may_wait = true };

	(void)ctx;
	assert_int_equal(uns_source_pread_how(backing, 0, how, buf, sizeof(buf), 4096, NULL), 0);
	return NULL;
}

/* The turn itself is passed only then. */
static void nobody_waits_for_a_turn_once_another_way_is_tried(void **state)
{
	static const enum uns_way turns_known = UNS_WAY_TURNS;
	const struct uns_reading last = { UNS_WAY_TURNS, .counts = true };
	pthread_t thread;
	uint64_t next;

	(void)state;
	begin_to_find(1000000, 1000000);
	uns_ways_learn(&engine->ways, backing->dev, (struct uns_ways_kind){ .is_far = true }, &turns_known);
	assert_true(uns_turn_take(&backing->turns, &backing->turn[0], 0, always, NULL, &next));
	assert_int_equal(pthread_create(&thread, NULL, read_in_turn, NULL), 0);
	wait_for_waiting(&backing->turns, &backing->turn[0], 1);
	atomic_store(&engine->ways.storage[0].way, UNS_WAY_CACHE);
	uns_streams_read_end(backing, &last, 0);
	pthread_join(thread, NULL);
	uns_turn_pass(&backing->turns, &backing->turn[0], 0);
}

/* Small tensors of one shard. */
enum { SMALL = 8192, SMALL_BYTES = 16 << 10, TURNED = 4 * MiB / SMALL_BYTES, RANKS = 64 };

/* Where the shard has a tensor. */
typedef size_t place_of(size_t i);

/* Each 4 MiB of them from the last to the first. */
static size_t turned(size_t i)
{
	return i / TURNED * TURNED + TURNED - 1 - i % TURNED;
}

/* As if one of many ranks after the other had written its parts there, 4 MiB apart. */
static size_t of_ranks(size_t i)
{
	return i % RANKS * TURNED + i / RANKS;
}

static void add_small(size_t i, place_of *place)
{
	const uint64_t elems = SMALL_BYTES / 2;
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .offset_bytes = place(i) * SMALL_BYTES,
				   .length_bytes = SMALL_BYTES,
				   .box = &(struct uns_box){ 1, { 0 }, { elems } } };
	const char *name = uns_arena_printf(&arena, "w%zu", i);
	struct uns_tensor t = { .name = name,
				.key = name,
				.root = "",
				.dtype = UNS_BF16,
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE,
				.shape = { .n = 1, .dim = { elems } } };
	uint32_t id;

	assert_int_equal(uns_catalog_add_tensor(cat, &t, &id, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, root, "shard-0", &piece.file, NULL), 0);
	assert_int_equal(uns_catalog_add_piece(cat, &piece, NULL), 0);
}

static struct uns_layout small_ones(place_of *place)
{
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_layout layout;
	size_t i;

	uns_backing_free(backing);
	uns_catalog_free(cat);
	assert_int_equal(uns_catalog_new("checkpoint-1", &cat, NULL), 0);
	for (i = 0; i < SMALL; i++)
		add_small(i, place);
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	assert_int_equal(uns_backing_new(engine, cat, &backing, NULL), 0);
	for (i = 0; i < SMALL; i++)
		uns_layout_tensor(&b, &cat->tensors[i], 0, SMALL_BYTES / 2, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, cat, &layout, NULL), 0);
	return layout;
}

/* At least so many of them for each call. */
static void read_small_ones(place_of *place, unsigned many)
{
	struct uns_layout layout = small_ones(place);
	struct uns_streams streams;

	backing->is_far = true;
	uns_streams_init(&streams);
	read_in_order(&streams, &layout, 0, SMALL / (MiB / SMALL_BYTES));
	print_message("%llu calls for %llu bytes\n", (unsigned long long)asked_calls, (unsigned long long)asked_bytes);
	assert_true(asked_bytes > (uint64_t)SMALL * SMALL_BYTES / 2);
	assert_true(asked_calls < asked_bytes / SMALL_BYTES / many);
	uns_streams_fini(&streams, engine);
}

static void asks_at_one_go_for_what_is_near_in_a_shard(void **state)
{
	(void)state;
	read_small_ones(turned, 4);
}

/* Which have little each of what the reader wants next. */
static void asks_many_ranks_at_one_go_for_more_than_is_wanted_next(void **state)
{
	(void)state;
	read_small_ones(of_ranks, 6);
}

/* What lies between is read too, once, and is in memory when its turn comes. */
static void reads_from_front_to_back_what_a_shard_has_in_another_order(void **state)
{
	static const enum uns_way ways[] = { UNS_WAY_CACHE, UNS_WAY_TURNS };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct uns_layout layout = small_ones(turned);
		struct uns_streams streams;

		engine->way = ways[i];
		keeps = true;
		uns_streams_init(&streams);
		read_in_order(&streams, &layout, 0, SMALL / (MiB / SMALL_BYTES));
		assert_int_equal(read_elsewhere == 0, ways[i] == UNS_WAY_TURNS);
		uns_streams_fini(&streams, engine);
		teardown(state);
		setup(state);
	}
}

static void keeps_to_the_budget_and_gives_it_back(void **state)
{
	enum { FILES = 12, READ_MiB = 32 }; /* of each */
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams[FILES];
	uint64_t before;
	unsigned i, k;

	(void)state;
	if (has_shorter_tests())
		return;
	for (i = 0; i < FILES; i++)
		uns_streams_init(&streams[i]);
	for (k = 0; k < READ_MiB; k += 4)
		for (i = 0; i < FILES; i++)
			read_in_order(&streams[i], &layout, (uint64_t)(i * 300 + k) * MiB, 4);
	assert_true(asked_bytes > FILES * READ_MiB / 2 * (uint64_t)MiB);
	assert_true(asked_bytes <= (FILES * READ_MiB + BUDGET_MiB) * (uint64_t)MiB);
	for (i = 0; i < FILES; i++)
		uns_streams_fini(&streams[i], engine);

	before = asked_bytes; /* all is left for the next */
	uns_streams_init(&streams[0]);
	read_in_order(&streams[0], &layout, 3800 * (uint64_t)MiB, 100);
	assert_true(asked_bytes - before > (100 + BUDGET_MiB / 2 - 8) * (uint64_t)MiB);
	uns_streams_fini(&streams[0], engine);
}

/* The mount's pages need as much room as the shards'. */
static void read_with_little_room(struct uns_streams *streams, const struct uns_layout *layout, unsigned from,
				  unsigned n)
{
	unsigned i;

	for (i = from; i < from + n; i++) {
		read_at(streams, layout, (uint64_t)i * REQUEST, REQUEST);
		memory.came += REQUEST / PAGE;
	}
}

/* A slow reader: all that is asked for comes before its next read. */
static void asks_for_nothing_that_memory_would_lose_before_it_is_read(void **state)
{
	static const uint64_t left[] = { ROOM_MiB * (uint64_t)MiB, UINT64_MAX };
	const size_t n = has_shorter_tests() ? 1 : 2;
	size_t i;

	for (i = 0; i < n; i++) {
		struct uns_layout layout = file_of(UNS_BF16);
		struct uns_streams streams;

		memory.room = ROOM_MiB * (MiB / PAGE);
		memory.memory_left = left[i];
		uns_streams_init(&streams);
		read_with_little_room(&streams, &layout, 0, 256);
		print_message("%u pages came twice\n", memory.again);
		assert_int_equal(memory.again == 0, left[i] != UINT64_MAX);
		assert_true(asked_bytes >= 240 * (uint64_t)MiB);
		uns_streams_fini(&streams, engine);
		teardown(state);
		setup(state);
	}
}

static void asks_for_less_once_memory_is_short(void **state)
{
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams;
	uint32_t before;

	(void)state;
	memory.room = UINT32_MAX;
	uns_streams_init(&streams);
	read_with_little_room(&streams, &layout, 0, 128);
	memory.room = ROOM_MiB * (MiB / PAGE);
	memory.memory_left = ROOM_MiB * (uint64_t)MiB;
	taken_ns += 1000000000;
	read_with_little_room(&streams, &layout, 128, BUDGET_MiB + 1); /* what was asked for, and has gone in part */
	before = memory.again;
	read_with_little_room(&streams, &layout, 128 + BUDGET_MiB + 1, 128);
	assert_int_equal(memory.again, before);
	uns_streams_fini(&streams, engine);
}

static void stops_when_the_reader_stops(void **state)
{
	struct uns_layout layout = file_of(UNS_BF16);
	struct uns_streams streams;
	uint64_t before;
	unsigned i;

	(void)state;
	uns_streams_init(&streams);
	read_in_order(&streams, &layout, 0, 64);
	before = asked_bytes;
	assert_true(before > 0);
	for (i = 0; i < 38; i++)
		read_at(&streams, &layout, (uint64_t)(i * 29 % 38 + 2) * 100 * MiB, REQUEST);
	assert_int_equal(asked_bytes, before);
	uns_streams_fini(&streams, engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asks_for_what_is_then_read, setup, teardown),
		cmocka_unit_test_setup_teardown(asks_an_object_store_for_128_MiB_ahead_and_two_readers_for_96_each,
						setup, teardown),
		cmocka_unit_test_setup_teardown(asks_nothing_for_a_header_or_for_reads_here_and_there, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_each_shard_from_front_to_back, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_that_few_long_requests_are_faster, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_that_short_requests_are_faster, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_to_the_page_cache_and_to_what_was_found, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_nothing_by_a_small_file_or_by_reads_here_and_there, setup,
						teardown),
		cmocka_unit_test_setup_teardown(only_reads_from_front_to_back_go_past_the_page_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_nothing_by_what_is_in_the_page_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_nothing_by_what_has_no_storage, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_nothing_for_an_object_store, setup, teardown),
		cmocka_unit_test(who_wants_what_comes_first_is_next),
		cmocka_unit_test_setup_teardown(nobody_waits_for_a_turn_once_another_way_is_tried, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_to_the_budget_and_gives_it_back, setup, teardown),
		cmocka_unit_test_setup_teardown(asks_for_nothing_that_memory_would_lose_before_it_is_read, setup,
						teardown),
		cmocka_unit_test_setup_teardown(asks_for_less_once_memory_is_short, setup, teardown),
		cmocka_unit_test_setup_teardown(stops_when_the_reader_stops, setup, teardown),
		cmocka_unit_test_setup_teardown(asks_at_one_go_for_what_is_near_in_a_shard, setup, teardown),
		cmocka_unit_test_setup_teardown(asks_many_ranks_at_one_go_for_more_than_is_wanted_next, setup,
						teardown),
		cmocka_unit_test_setup_teardown(reads_from_front_to_back_what_a_shard_has_in_another_order, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
