/* What tests ask of the CUDA runtime on host memory (fake_cudart.c), beside CUDA's own functions.
 *
 * Its streams are as late as a stream may be: a copy takes place when its event, or its stream, is waited for, and
 * not before. So bytes that are written into a buffer too early arrive in the wrong place, always. As CUDA does, it
 * refuses a stream or an event of another device than the thread's current one. It also refuses to copy from memory
 * that is not pinned, and, once something was allocated by cudaMalloc, to copy to what was not. */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H

#include <stddef.h>
#include <stdint.h>
#include <pthread.h>

enum fake_kind {
	FAKE_QUEUED, /* cudaMemcpyAsync returned */
	FAKE_COPIED, /* the copy took place */
	FAKE_PINNED, /* cudaHostAlloc */
};

struct fake_call {
	enum fake_kind kind;
	int device;
	void *stream;
	const void *from;
	void *to;
	size_t n_bytes;
	/* Of the thread that called; what the kernel says of it: */
	int memory_policy; /* MPOL_..; -1 = it does not say */
	uint64_t memory_nodes, processors; /* the first 64 of each, as bits */
};

/* Forget calls and failures; n_devices: how many GPUs there are from now on. */
void fake_reset(int n_devices);
/* The nth call (from 1) of the function of this name ("cudaMemcpyAsync") from now on fails. */
void fake_fail(const char *function, int nth, int error);
/* The nth call of the function from now on waits, before it does anything, until fake_release. One at a time. */
void fake_hold(const char *function, int nth);
void fake_release(void);
/* Calls since fake_reset, oldest first. Only while no other thread is in CUDA. */
const struct fake_call *fake_calls(size_t *n);
/* How many of a kind there are by now. Any time. */
size_t fake_count(enum fake_kind kind);
/* The GPUs' PCI bus id from now on; NULL = cudaDeviceGetPCIBusId fails. */
void fake_bus_id(const char *bus_id);
/* How often the thread called any function of CUDA. */
size_t fake_calls_of_thread(pthread_t thread);
/* How often memory of a GPU, or managed memory, was asked for so far. */
size_t fake_taken(void);
/* Streams, events and pieces of pinned memory that there are. */
size_t fake_alive(void);

#endif
