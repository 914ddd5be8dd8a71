/* A ring of pinned buffers between the threads that read and the GPU's copies: a buffer is taken, filled, copied
 * from, and taken again once its copy has ended. Any number of threads; each with the GPU as its current device. */
#ifndef UNS_DEVICE_PINNED_H
#define UNS_DEVICE_PINNED_H

#include <stdint.h>

#include "device/runtime.h"

struct uns_pinned_ring;

struct uns_pinned {
	uint8_t *at;
	cudaEvent_t copied; /* behind the last copy from it */
};

/* Without a buffer. cuda is borrowed. */
int uns_pinned_new(const struct uns_cuda *cuda, size_t n_buffers, size_t buffer_bytes, struct uns_pinned_ring **out,
		   struct uns_err *err);
/* Pin one more buffer, at most n_buffers times, by one thread, while others use the earlier ones.
 * -ENOMEM: the system lets no more memory be pinned; the ring is as it was. */
int uns_pinned_add(struct uns_pinned_ring *ring, struct uns_err *err);
/* Waits for the copies that are under way. NULL is allowed. */
void uns_pinned_free(struct uns_pinned_ring *ring);
size_t uns_pinned_bytes(const struct uns_pinned_ring *ring); /* of one buffer */

/* The buffer that was given back longest ago; waits until one is there and its copy has ended. */
int uns_pinned_take(struct uns_pinned_ring *ring, struct uns_pinned **out, struct uns_err *err);
/* Give it back: it is taken again behind everything that is queued on the stream by now. Also after a failure. */
int uns_pinned_give(struct uns_pinned_ring *ring, struct uns_pinned *buffer, cudaStream_t stream, struct uns_err *err);

#endif
