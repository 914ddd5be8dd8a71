/* One GPU to read into: its runtime, its pinned buffers, its threads. */
#ifndef UNS_DEVICE_DEVICE_H
#define UNS_DEVICE_DEVICE_H

#include "base/pool.h"
#include "device/near.h"
#include "device/pinned.h"
#include "unshard.h"

struct unshard_device {
	struct uns_cuda cuda;
	bool loaded;
	struct unshard_device_options opt; /* without zeros */
	struct uns_processors processors; /* of its threads: those near the GPU, of its maker's */
	struct uns_pinned_ring *ring;
	cudaStream_t stream; /* of transfers that were given none */
	struct uns_pool *pool;
	/* The thread that makes CUDA's objects and frees them. It waits meanwhile, so that they are freed where no
	 * other thread is available. */
	pthread_t maker;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	enum device_progress {
		DEVICE_MAKING,
		DEVICE_MADE, /* transfers may begin: there is one buffer */
		DEVICE_PINNED, /* no more buffers come */
		DEVICE_CLOSING,
	} progress;
	int code; /* of making it */
	struct uns_err err;
};

void device_wait(struct unshard_device *d, enum device_progress progress);

/* Make the GPU the calling thread's current one: before any other call of CUDA in a thread. */
static inline int device_set_current(const struct unshard_device *d, struct uns_err *err)
{
	return uns_cuda_check(&d->cuda, d->cuda.SetDevice(d->cuda.ordinal), "choosing the GPU", err);
}

#endif
