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
	struct uns_near near;
	struct uns_pinned_ring *ring;
	cudaStream_t stream; /* of transfers that were given none */
	struct uns_pool *pool;
};

/* Make the GPU the calling thread's current one: before any other call of CUDA in a thread. */
static inline int device_set_current(const struct unshard_device *d, struct uns_err *err)
{
	return uns_cuda_check(&d->cuda, d->cuda.SetDevice(d->cuda.ordinal), "choosing the GPU",
			      err);
}

#endif
