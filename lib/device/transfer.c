/* unshard_device_read, unshard_transfer_*: which threads read what, when it is copied, and which thread waits for it.
 *
 * A transfer has a thread of its own. It lets the device's pool fill buffers and queue their copies, records an event
 * behind the last of them, and waits for that. So callers wait on a condition and never call CUDA, which would make
 * a context on whatever GPU is their thread's current one. */
#include <stdlib.h>
#include <string.h>

#include "api/caller.h"
#include "api/errors.h"
#include "device/device.h"
#include "device/portions.h"

enum progress { READING, QUEUED, OVER };

struct unshard_transfer {
	struct unshard_device *device;
	struct uns_portions portions;
	cudaStream_t stream;
	cudaEvent_t copied; /* NULL until the thread made it */
	pthread_t thread;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	enum progress progress;
	int code; /* of what failed first */
	struct uns_err err;
	bool freed;
};

/* -- a transfer's threads -- */

static int buffer_fill(const struct unshard_transfer *t, const struct uns_portion *first, const struct uns_portion *end,
		       uint8_t *buffer, struct uns_err *err)
{
	const struct uns_cuda *cuda = &t->device->cuda;
	const struct uns_portion *p;

	for (p = first; p < end; p++)
		UNS_TRY(tensor_box_read(&p->box, t->device->opt.way, buffer + p->at_bytes, err));
	for (p = first; p < end; p++)
		UNS_TRY(uns_cuda_check(cuda,
				       cuda->MemcpyAsync(p->to, buffer + p->at_bytes, p->box.size_bytes,
							 cudaMemcpyHostToDevice, t->stream),
				       "copying", err));
	return 0;
}

/* An item of the pool: one buffer is filled, and copied from. */
static int fill_and_copy(void *ctx, size_t i, struct uns_err *err)
{
	const struct unshard_transfer *t = ctx;
	const struct uns_portions *p = &t->portions;
	const size_t end = i + 1 < p->n_fills ? p->begin[i + 1] : p->n;
	struct uns_pinned *buffer;
	int code, given;

	UNS_TRY(device_set_current(t->device, err));
	UNS_TRY(uns_pinned_take(t->device->ring, &buffer, err));
	code = buffer_fill(t, p->v + p->begin[i], p->v + end, buffer->at, err);
	given = uns_pinned_give(t->device->ring, buffer, t->stream, err);
	return code < 0 ? code : given;
}

static int queue_all(struct unshard_transfer *t, struct uns_err *err)
{
	const struct uns_cuda *cuda = &t->device->cuda;

	UNS_TRY(device_set_current(t->device, err));
	UNS_TRY(uns_cuda_check(cuda,
			       cuda->EventCreateWithFlags(&t->copied, cudaEventDisableTiming | cudaEventBlockingSync),
			       "making an event", err));
	UNS_TRY(uns_pool_each(t->device->pool, t->portions.n_fills, fill_and_copy, t, err));
	return uns_cuda_check(cuda, cuda->EventRecord(t->copied, t->stream), "copying", err);
}

static int wait_for_copies(struct unshard_transfer *t, struct uns_err *err)
{
	const struct uns_cuda *cuda = &t->device->cuda;

	return uns_cuda_check(cuda, cuda->EventSynchronize(t->copied), "copying", err);
}

static void transfer_report(struct unshard_transfer *t, enum progress progress, int code, const struct uns_err *err)
{
	pthread_mutex_lock(&t->lock);
	t->progress = progress;
	t->code = code;
	t->err = *err;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

static void *transfer_run(void *arg)
{
	struct unshard_transfer *t = arg;
	struct uns_err err = { 0 };
	int code;

	code = queue_all(t, &err);
	if (code < 0) /* what was queued writes to the caller's memory, on a stream that the caller may destroy now */
		t->device->cuda.StreamSynchronize(t->stream);
	transfer_report(t, QUEUED, code, &err);
	if (code == 0)
		code = wait_for_copies(t, &err);
	device_wait(t->device, DEVICE_PINNED); /* when a transfer is over, no thread of the device pins */
	transfer_report(t, OVER, code, &err);
	pthread_mutex_lock(&t->lock);
	while (!t->freed)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
	if (t->copied)
		t->device->cuda.EventDestroy(t->copied);
	return NULL;
}

/* -- a transfer's callers -- */

static int transfer_plan(struct unshard_transfer *t, const unshard_tensors *tensors,
			 const struct unshard_device_box *boxes, size_t n, struct uns_err *err)
{
	const char *at = (const char *)boxes;
	struct unshard_device_box b = CALLER_OWN(struct unshard_device_box);
	struct tensor_box box;
	size_t i;

	t->portions.buffer_bytes = uns_pinned_bytes(t->device->ring);
	for (i = 0; i < n; i++, at += boxes->size) {
		UNS_TRY(caller_take(&b, at, "device_box", err));
		UNS_TRY(tensor_box_take(tensors, b.i, b.lo, b.len, b.dtype, b.to_bytes, &box, err));
		if (!b.to && box.size_bytes)
			return uns_fail(err, -EINVAL, "tensor %s: there is no memory to read it into",
					unshard_tensors_at(tensors, b.i)->name);
		UNS_TRY(uns_portions_add(&t->portions, &box, b.to, err));
	}
	return 0;
}

static void transfer_drop(struct unshard_transfer *t)
{
	uns_portions_fini(&t->portions);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->changed);
	free(t);
}

static int transfer_begin(struct unshard_transfer *t, const unshard_tensors *tensors,
			  const struct unshard_device_box *boxes, size_t n, struct uns_err *err)
{
	int failed;

	if (t->stream == cudaStreamPerThread)
		return uns_fail(err, -EINVAL,
				"the stream is cudaStreamPerThread, which is another one in each thread: the library's "
				"threads queue the copies; make a stream, or give cudaStreamLegacy");
	UNS_TRY(transfer_plan(t, tensors, boxes, n, err));
	failed = uns_thread_begin(&t->thread, &t->device->processors, transfer_run, t);
	return failed ? uns_fail(err, -failed, "no thread to read with: %s", strerror(failed)) : 0;
}

int unshard_device_read(unshard_device *device, const unshard_tensors *tensors, const struct unshard_device_box *boxes,
			size_t n, void *const *stream, unshard_transfer **out, struct unshard_error *error)
{
	struct unshard_transfer *t = calloc(1, sizeof(*t));
	struct uns_err err = { 0 };
	int code;

	if (!t)
		return give_error(error, &err, uns_oom(&err));
	t->device = device;
	t->stream = stream ? *stream : device->stream;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	code = transfer_begin(t, tensors, boxes, n, &err);
	if (code < 0)
		transfer_drop(t);
	else
		*out = t;
	return give_error(error, &err, code);
}

static int wait_until(struct unshard_transfer *t, enum progress progress, struct unshard_error *error)
{
	struct uns_err err;
	int code;

	pthread_mutex_lock(&t->lock);
	while (t->progress < progress)
		pthread_cond_wait(&t->changed, &t->lock);
	code = t->code;
	err = t->err;
	pthread_mutex_unlock(&t->lock);
	return give_error(error, &err, code);
}

int unshard_transfer_queued(unshard_transfer *t, void **event, struct unshard_error *err)
{
	int code = wait_until(t, QUEUED, err);

	if (event && code == 0)
		*event = t->copied;
	return code;
}

int unshard_transfer_wait(unshard_transfer *t, struct unshard_error *err)
{
	return wait_until(t, OVER, err);
}

void unshard_transfer_free(unshard_transfer *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->freed = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	transfer_drop(t);
}
