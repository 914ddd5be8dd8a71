/* The part of the CUDA runtime that libunshard uses, on host memory. Built as libcudart.so.12, and found by the
 * loader's path as a real one is. See fake_cudart.h. */
#include "fake_cudart.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_CALLS = 1 << 16, MOST_BLOCKS = 256, MOST_THREADS = 256, MOST_FAILURES = 8 };

struct op {
	struct op *next;
	struct fake_call copy;
	struct CUevent_st *event; /* NULL = a copy */
	uint64_t nth;             /* of the event's records */
};

struct CUstream_st {
	int device;
	struct op *first, **end;
};

struct CUevent_st {
	int device;
	struct CUstream_st *stream;
	uint64_t n_recorded, n_past;
};

struct block {
	char *at;
	size_t n_bytes;
	bool pinned;
};

static struct {
	pthread_mutex_t lock;
	int n_devices;
	char bus_id[64];
	struct CUstream_st legacy; /* stream 0, of any device */
	struct fake_call call[MOST_CALLS];
	size_t n_calls, n_alive, n_mallocs;
	struct block block[MOST_BLOCKS];
	struct {
		pthread_t thread;
		size_t n_calls;
	} thread[MOST_THREADS];
	size_t n_threads;
	struct {
		char function[64];
		int left, error;
	} failure[MOST_FAILURES];
	struct {
		char function[64];
		int left;
		bool on; /* a call waits, or will */
	} held;
	pthread_cond_t released;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER, .n_devices = 1 };

static _Thread_local int current;
static _Thread_local struct CUstream_st of_thread; /* cudaStreamPerThread; what is queued on it ends with the thread */
static _Thread_local cudaError_t last;

/* -- what tests call -- */

EXPORTED void fake_reset(int n_devices)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_devices = n_devices;
	fake.n_calls = 0;
	fake.n_threads = 0;
	memset(fake.failure, 0, sizeof(fake.failure));
	pthread_mutex_unlock(&fake.lock);
}

EXPORTED void fake_fail(const char *function, int nth, int error)
{
	size_t i = 0;

	pthread_mutex_lock(&fake.lock);
	while (fake.failure[i].left)
		if (++i == MOST_FAILURES)
			abort();
	strncpy(fake.failure[i].function, function, sizeof(fake.failure[i].function) - 1);
	fake.failure[i].left = nth;
	fake.failure[i].error = error;
	pthread_mutex_unlock(&fake.lock);
}

EXPORTED void fake_hold(const char *function, int nth)
{
	pthread_mutex_lock(&fake.lock);
	strncpy(fake.held.function, function, sizeof(fake.held.function) - 1);
	fake.held.left = nth;
	fake.held.on = true;
	pthread_mutex_unlock(&fake.lock);
}

EXPORTED void fake_release(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.held.on = false;
	memset(fake.held.function, 0, sizeof(fake.held.function));
	pthread_cond_broadcast(&fake.released);
	pthread_mutex_unlock(&fake.lock);
}

EXPORTED void fake_bus_id(const char *bus_id)
{
	strncpy(fake.bus_id, bus_id ? bus_id : "", sizeof(fake.bus_id) - 1);
}

EXPORTED const struct fake_call *fake_calls(size_t *n)
{
	*n = fake.n_calls;
	return fake.call;
}

EXPORTED size_t fake_count(enum fake_kind kind)
{
	size_t i, n = 0;

	pthread_mutex_lock(&fake.lock);
	for (i = 0; i < fake.n_calls; i++)
		n += fake.call[i].kind == kind;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

EXPORTED size_t fake_calls_of_thread(pthread_t thread)
{
	size_t i, n = 0;

	pthread_mutex_lock(&fake.lock);
	for (i = 0; i < fake.n_threads; i++)
		if (pthread_equal(fake.thread[i].thread, thread))
			n += fake.thread[i].n_calls;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

EXPORTED size_t fake_taken(void)
{
	return fake.n_mallocs;
}

EXPORTED size_t fake_alive(void)
{
	return fake.n_alive;
}

/* -- every function of CUDA begins with enter and ends with leave -- */

static void count_thread(void)
{
	size_t i;

	for (i = 0; i < fake.n_threads; i++)
		if (pthread_equal(fake.thread[i].thread, pthread_self()))
			break;
	if (i == MOST_THREADS)
		return;
	if (i == fake.n_threads) {
		fake.thread[i].thread = pthread_self();
		fake.thread[i].n_calls = 0;
		fake.n_threads++;
	}
	fake.thread[i].n_calls++;
}

/* The lock is held from here on. */
static cudaError_t enter(const char *function)
{
	cudaError_t found = cudaSuccess;
	size_t i;

	pthread_mutex_lock(&fake.lock);
	count_thread();
	if (fake.held.on && !strcmp(fake.held.function, function) && !--fake.held.left)
		while (fake.held.on)
			pthread_cond_wait(&fake.released, &fake.lock);
	for (i = 0; i < MOST_FAILURES; i++)
		if (fake.failure[i].left && !strcmp(fake.failure[i].function, function) && !--fake.failure[i].left)
			found = (cudaError_t)fake.failure[i].error;
	return found;
}

static cudaError_t leave(cudaError_t code)
{
	pthread_mutex_unlock(&fake.lock);
	if (code != cudaSuccess)
		last = code;
	return code;
}

static void record_call(const struct fake_call *call)
{
	struct fake_call *own = &fake.call[fake.n_calls];
	unsigned long nodes[16] = { 0 };
	cpu_set_t processors;
	unsigned i;

	if (fake.n_calls == MOST_CALLS)
		return;
	fake.n_calls++;
	*own = *call;
	if (syscall(SYS_get_mempolicy, &own->memory_policy, nodes, 8 * sizeof(nodes), NULL, 0) != 0)
		own->memory_policy = -1;
	own->memory_nodes = nodes[0];
	sched_getaffinity(0, sizeof(processors), &processors);
	for (i = 0, own->processors = 0; i < 64; i++)
		own->processors |= (uint64_t)!!CPU_ISSET(i, &processors) << i;
}

/* -- memory -- */

static void *block_new(size_t n_bytes, bool pinned)
{
	size_t i;

	for (i = 0; i < MOST_BLOCKS; i++) {
		if (fake.block[i].at)
			continue;
		fake.block[i] = (struct block){ malloc(n_bytes + !n_bytes), n_bytes, pinned };
		return fake.block[i].at;
	}
	return NULL;
}

static bool block_free(void *at, bool pinned)
{
	size_t i;

	for (i = 0; i < MOST_BLOCKS; i++)
		if (fake.block[i].at == at && fake.block[i].pinned == pinned) {
			free(fake.block[i].at);
			fake.block[i].at = NULL;
			return true;
		}
	return false;
}

static bool in_block(const char *at, size_t n_bytes, bool pinned)
{
	size_t i;

	for (i = 0; i < MOST_BLOCKS; i++) {
		const struct block *b = &fake.block[i];

		if (b->at && b->pinned == pinned && at >= b->at && n_bytes <= b->n_bytes &&
		    (size_t)(at - b->at) <= b->n_bytes - n_bytes)
			return true;
	}
	return false;
}

static cudaError_t take_memory(const char *function, void **out, size_t n_bytes)
{
	cudaError_t code = enter(function);

	fake.n_mallocs++;
	if (code == cudaSuccess && !(*out = block_new(n_bytes, false)))
		code = cudaErrorMemoryAllocation;
	return leave(code);
}

EXPORTED cudaError_t cudaMalloc(void **out, size_t n_bytes)
{
	return take_memory("cudaMalloc", out, n_bytes);
}

EXPORTED cudaError_t cudaMallocManaged(void **out, size_t n_bytes, unsigned flags)
{
	(void)flags;
	return take_memory("cudaMallocManaged", out, n_bytes);
}

EXPORTED cudaError_t cudaMallocAsync(void **out, size_t n_bytes, cudaStream_t stream)
{
	(void)stream;
	return take_memory("cudaMallocAsync", out, n_bytes);
}

EXPORTED cudaError_t cudaFree(void *at)
{
	cudaError_t code = enter("cudaFree");

	if (code == cudaSuccess && at && !block_free(at, false))
		code = cudaErrorInvalidValue;
	return leave(code);
}

EXPORTED cudaError_t cudaHostAlloc(void **out, size_t n_bytes, unsigned flags)
{
	cudaError_t code = enter("cudaHostAlloc");

	(void)flags;
	if (code == cudaSuccess && !(*out = block_new(n_bytes, true)))
		code = cudaErrorMemoryAllocation;
	if (code == cudaSuccess) {
		record_call(
			&(struct fake_call){ .kind = FAKE_PINNED, .device = current, .to = *out, .n_bytes = n_bytes });
		fake.n_alive++;
	}
	return leave(code);
}

EXPORTED cudaError_t cudaFreeHost(void *at)
{
	cudaError_t code = enter("cudaFreeHost");

	if (code == cudaSuccess && at && !block_free(at, true))
		code = cudaErrorInvalidValue;
	else if (code == cudaSuccess && at)
		fake.n_alive--;
	return leave(code);
}

/* -- streams and events -- */

static struct CUstream_st *stream_of(cudaStream_t stream)
{
	const bool legacy = !stream || stream == cudaStreamLegacy, own = stream == cudaStreamPerThread;
	struct CUstream_st *s = legacy ? &fake.legacy : own ? &of_thread : stream;

	if (legacy || own)
		s->device = current;
	if (!s->end)
		s->end = &s->first;
	return s;
}

static void queue(struct CUstream_st *s, struct op op)
{
	struct op *new = malloc(sizeof(*new));

	*new = op;
	*s->end = new;
	s->end = &new->next;
}

static void run_first(struct CUstream_st *s)
{
	struct op *op = s->first;

	s->first = op->next;
	if (!s->first)
		s->end = &s->first;
	if (op->event) {
		op->event->n_past = op->nth;
	} else {
		memcpy(op->copy.to, op->copy.from, op->copy.n_bytes);
		op->copy.kind = FAKE_COPIED;
		record_call(&op->copy);
	}
	free(op);
}

EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	cudaError_t code = enter("cudaStreamCreateWithFlags");

	(void)flags;
	if (code == cudaSuccess) {
		*out = calloc(1, sizeof(**out));
		(*out)->device = current;
		fake.n_alive++;
	}
	return leave(code);
}

EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t code = enter("cudaStreamSynchronize");
	struct CUstream_st *s = stream_of(stream);

	while (s->first)
		run_first(s);
	return leave(code);
}

EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t code = enter("cudaStreamDestroy");

	while (stream->first)
		run_first(stream);
	free(stream);
	fake.n_alive--;
	return leave(code);
}

EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	cudaError_t code = enter("cudaEventCreateWithFlags");

	(void)flags;
	if (code == cudaSuccess) {
		*out = calloc(1, sizeof(**out));
		(*out)->device = current;
		fake.n_alive++;
	}
	return leave(code);
}

EXPORTED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	cudaError_t code = enter("cudaEventRecord");
	struct CUstream_st *s = stream_of(stream);

	if (code == cudaSuccess && (event->device != s->device || s->device != current))
		code = cudaErrorInvalidResourceHandle;
	if (code == cudaSuccess) {
		event->stream = s;
		queue(s, (struct op){ .event = event, .nth = ++event->n_recorded });
	}
	return leave(code);
}

EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t code = enter("cudaEventSynchronize");

	while (event->n_past < event->n_recorded)
		run_first(event->stream);
	return leave(code);
}

EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t code = enter("cudaEventDestroy");

	while (event->n_past < event->n_recorded)
		run_first(event->stream);
	free(event);
	fake.n_alive--;
	return leave(code);
}

EXPORTED cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind,
				     cudaStream_t stream)
{
	cudaError_t code = enter("cudaMemcpyAsync");
	struct CUstream_st *s = stream_of(stream);
	struct fake_call call = {
		.kind = FAKE_QUEUED, .device = current, .stream = stream, .from = from, .to = to, .n_bytes = n_bytes
	};

	if (code == cudaSuccess && s->device != current)
		code = cudaErrorInvalidResourceHandle;
	if (code == cudaSuccess && (kind != cudaMemcpyHostToDevice || !in_block(from, n_bytes, true) ||
				    (fake.n_mallocs && !in_block(to, n_bytes, false))))
		code = cudaErrorInvalidValue;
	if (code == cudaSuccess) {
		record_call(&call);
		queue(s, (struct op){ .copy = call });
	}
	return leave(code);
}

/* -- devices and errors -- */

EXPORTED cudaError_t cudaGetDeviceCount(int *n)
{
	cudaError_t code = enter("cudaGetDeviceCount");

	if (code == cudaSuccess && !fake.n_devices)
		code = cudaErrorNoDevice;
	*n = fake.n_devices;
	return leave(code);
}

EXPORTED cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int device)
{
	cudaError_t code = enter("cudaDeviceGetPCIBusId");

	if (code == cudaSuccess && (device < 0 || device >= fake.n_devices || !fake.bus_id[0]))
		code = cudaErrorInvalidDevice;
	if (code == cudaSuccess)
		strncpy(out, fake.bus_id, (size_t)size);
	return leave(code);
}

EXPORTED cudaError_t cudaSetDevice(int device)
{
	cudaError_t code = enter("cudaSetDevice");

	if (code == cudaSuccess && (device < 0 || device >= fake.n_devices))
		code = cudaErrorInvalidDevice;
	if (code == cudaSuccess)
		current = device;
	return leave(code);
}

EXPORTED cudaError_t cudaGetLastError(void)
{
	cudaError_t code = last;

	last = cudaSuccess;
	return code;
}

#ifndef FAKE_WITHOUT_NAMES /* a runtime that lacks a function */
EXPORTED const char *cudaGetErrorName(cudaError_t code)
{
	return code == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOfTheFake";
}
#endif

EXPORTED const char *cudaGetErrorString(cudaError_t code)
{
	return code == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "an error of the fake";
}
