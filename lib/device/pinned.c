#include "device/pinned.h"

#include <pthread.h>
#include <stdlib.h>

struct uns_pinned_ring {
	const struct uns_cuda *cuda;
	size_t n, n_pinned, buffer_bytes; /* n: at most */
	struct uns_pinned *v;             /* n, of which n_pinned are there */
	struct uns_pinned **idle;         /* a queue of up to n: n_idle from `first` on, around the end */
	size_t first, n_idle;
	pthread_mutex_t lock; /* the queue */
	pthread_cond_t given;
};

static void ring_put(struct uns_pinned_ring *r, struct uns_pinned *buffer)
{
	pthread_mutex_lock(&r->lock);
	r->idle[(r->first + r->n_idle++) % r->n] = buffer;
	pthread_cond_signal(&r->given);
	pthread_mutex_unlock(&r->lock);
}

static struct uns_pinned *ring_get(struct uns_pinned_ring *r)
{
	struct uns_pinned *buffer;

	pthread_mutex_lock(&r->lock);
	while (!r->n_idle)
		pthread_cond_wait(&r->given, &r->lock);
	buffer = r->idle[r->first];
	r->first = (r->first + 1) % r->n;
	r->n_idle--;
	pthread_mutex_unlock(&r->lock);
	return buffer;
}

int uns_pinned_new(const struct uns_cuda *cuda, size_t n_buffers, size_t buffer_bytes, struct uns_pinned_ring **out,
		   struct uns_err *err)
{
	struct uns_pinned_ring *r = calloc(1, sizeof(*r));

	UNS_TRY_ALLOC(r, err);
	*r = (struct uns_pinned_ring){ .cuda = cuda, .n = n_buffers, .buffer_bytes = buffer_bytes };
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->given, NULL);
	r->v = calloc(n_buffers, sizeof(*r->v));
	r->idle = calloc(n_buffers, sizeof(*r->idle));
	if (!r->v || !r->idle) {
		uns_pinned_free(r);
		return uns_oom(err);
	}
	*out = r;
	return 0;
}

/* An event that was never recorded counts as past. */
static int buffer_make(const struct uns_pinned_ring *r, struct uns_pinned *out, struct uns_err *err)
{
	const struct uns_cuda *cuda = r->cuda;
	void *memory;
	int code;

	UNS_TRY(uns_cuda_check(cuda, cuda->HostAlloc(&memory, r->buffer_bytes, cudaHostAllocDefault),
			       "pinning memory for a buffer (a smaller one may fit)", err));
	code = uns_cuda_check(cuda,
			      cuda->EventCreateWithFlags(&out->copied, cudaEventDisableTiming | cudaEventBlockingSync),
			      "making an event", err);
	if (code < 0)
		cuda->FreeHost(memory);
	else
		out->at = memory;
	return code;
}

int uns_pinned_add(struct uns_pinned_ring *r, struct uns_err *err)
{
	struct uns_pinned *buffer = &r->v[r->n_pinned];

	UNS_TRY(buffer_make(r, buffer, err));
	r->n_pinned++;
	ring_put(r, buffer);
	return 0;
}

void uns_pinned_free(struct uns_pinned_ring *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < r->n_pinned; i++) {
		r->cuda->EventSynchronize(r->v[i].copied);
		r->cuda->EventDestroy(r->v[i].copied);
		r->cuda->FreeHost(r->v[i].at);
	}
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->given);
	free(r->v);
	free(r->idle);
	free(r);
}

size_t uns_pinned_bytes(const struct uns_pinned_ring *r)
{
	return r->buffer_bytes;
}

int uns_pinned_take(struct uns_pinned_ring *r, struct uns_pinned **out, struct uns_err *err)
{
	struct uns_pinned *buffer = ring_get(r);
	int code = uns_cuda_check(r->cuda, r->cuda->EventSynchronize(buffer->copied), "copying", err);

	if (code < 0)
		ring_put(r, buffer);
	else
		*out = buffer;
	return code;
}

int uns_pinned_give(struct uns_pinned_ring *r, struct uns_pinned *buffer, cudaStream_t stream, struct uns_err *err)
{
	int code = uns_cuda_check(r->cuda, r->cuda->EventRecord(buffer->copied, stream), "copying", err);

	if (code < 0)
		r->cuda->StreamSynchronize(stream); /* no event shows when the copy has ended */
	ring_put(r, buffer);
	return code;
}
