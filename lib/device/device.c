/* unshard_device_open, unshard_device_close. */
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/caller.h"
#include "api/errors.h"
#include "base/checked.h"
#include "device/portions.h"

enum {
	DEFAULT_BUFFER_BYTES = 8 << 20,
	LEAST_BUFFER_BYTES = 4096,
	DEFAULT_BUFFERS = 16,
	MOST_DEFAULT_THREADS =
		12, /* fewer than buffers, so that copies are under way while all of them read */
};

static int take_options(struct unshard_device *d, const struct unshard_device_options *given,
			struct uns_err *err)
{
	struct unshard_device_options *o = &d->opt;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t bytes;

	*o = (struct unshard_device_options)CALLER_OWN(struct unshard_device_options);
	if (given)
		UNS_TRY(caller_take(o, given, "device_options", err));
	if (!o->buffer_bytes)
		o->buffer_bytes = DEFAULT_BUFFER_BYTES;
	if (!o->n_buffers)
		o->n_buffers = DEFAULT_BUFFERS;
	if (!o->n_threads)
		o->n_threads = (unsigned)uns_u64_min(processors > 0 ? (uint64_t)processors : 1,
						     MOST_DEFAULT_THREADS);
	if (o->buffer_bytes < LEAST_BUFFER_BYTES ||
	    !uns_u64_mul(o->buffer_bytes, o->n_buffers, &bytes))
		return uns_fail(
			err, -EINVAL,
			"buffer_bytes=%llu with n_buffers=%u: a buffer has at least %d bytes, and all together fit into memory",
			(unsigned long long)o->buffer_bytes, o->n_buffers, LEAST_BUFFER_BYTES);
	if (o->way > UNSHARD_WAY_DIRECT)
		return uns_fail(err, -EINVAL, "way=%d does not exist", (int)o->way);
	/* Portions begin at multiples of this. */
	o->buffer_bytes -= o->buffer_bytes % UNS_PORTION_ALIGN;
	return 0;
}

static int device_make(struct unshard_device *d, struct uns_err *err)
{
	const struct uns_cuda *cuda = &d->cuda;

	UNS_TRY(uns_cuda_load(&d->cuda, d->cuda.ordinal, err));
	d->loaded = true;
	UNS_TRY(device_set_current(d, err));
	UNS_TRY(uns_cuda_check(cuda, cuda->StreamCreateWithFlags(&d->stream, cudaStreamNonBlocking),
			       "making a stream", err));
	uns_near_find(cuda, &d->near);
	uns_near_take_memory(&d->near); /* this thread ends with the buffers, and CUDA has begun its own */
	return uns_pinned_new(cuda, d->opt.n_buffers, d->opt.buffer_bytes, &d->ring, err);
}

static int device_unmake(struct unshard_device *d, struct uns_err *err)
{
	(void)err;
	if (!d->loaded)
		return 0;
	d->cuda.SetDevice(
		d->cuda.ordinal); /* should it fail, all that can be freed is freed nevertheless */
	uns_pinned_free(d->ring);
	if (d->stream)
		d->cuda.StreamDestroy(d->stream);
	return 0;
}

struct aside {
	struct unshard_device *device;
	int (*work)(struct unshard_device *d, struct uns_err *err);
	struct uns_err *err;
	int code;
};

static void *aside_run(void *arg)
{
	struct aside *a = arg;

	a->code = a->work(a->device, a->err);
	return NULL;
}

/* In a thread of its own, which CUDA's current device belongs to. */
static int aside(struct unshard_device *d, int (*work)(struct unshard_device *, struct uns_err *),
		 struct uns_err *err)
{
	struct aside a = { .device = d, .work = work, .err = err };
	pthread_t thread;
	int failed = pthread_create(&thread, NULL, aside_run, &a);

	if (failed)
		return uns_fail(err, -failed, "no thread for CUDA: %s", strerror(failed));
	pthread_join(thread, NULL);
	return a.code;
}

int unshard_device_open(int ordinal, const struct unshard_device_options *options,
			unshard_device **out, struct unshard_error *error)
{
	struct unshard_device *d = calloc(1, sizeof(*d));
	struct uns_err err = { 0 };
	int code;

	if (!d)
		return give_error(error, &err, uns_oom(&err));
	d->cuda.ordinal = ordinal;
	code = take_options(d, options, &err);
	if (code == 0)
		code = uns_pool_new(d->opt.n_threads - 1, &d->pool,
				    &err); /* a transfer's own thread works too */
	if (code == 0)
		code = aside(d, device_make, &err);
	if (code < 0)
		unshard_device_close(d);
	else
		*out = d;
	return give_error(error, &err, code);
}

void unshard_device_close(unshard_device *d)
{
	if (!d)
		return;
	aside(d, device_unmake, NULL);
	uns_pool_free(d->pool);
	free(d);
}
