/* unshard_device_open, unshard_device_close. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/caller.h"
#include "api/errors.h"
#include "base/checked.h"
#include "device/portions.h"

enum {
	DEFAULT_BUFFER_BYTES = 2 << 20,
	LEAST_BUFFER_BYTES = 4096,
	DEFAULT_BUFFERS = 32,
};

static int take_options(struct unshard_device *d, const struct unshard_device_options *given, struct uns_err *err)
{
	struct unshard_device_options *o = &d->opt;
	uint64_t bytes;

	*o = (struct unshard_device_options)CALLER_OWN(struct unshard_device_options);
	if (given)
		UNS_TRY(caller_take(o, given, "device_options", err));
	if (!o->buffer_bytes)
		o->buffer_bytes = DEFAULT_BUFFER_BYTES;
	if (!o->n_buffers)
		o->n_buffers = DEFAULT_BUFFERS;
	if (o->buffer_bytes < LEAST_BUFFER_BYTES || !uns_u64_mul(o->buffer_bytes, o->n_buffers, &bytes))
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

/* -- what the maker's thread does -- */

static unsigned default_threads(const struct uns_processors *processors)
{
	const long n = processors->known ? CPU_COUNT(&processors->set) : sysconf(_SC_NPROCESSORS_ONLN);

	return (unsigned)uns_u64_min(n > 0 ? (uint64_t)n : 1, UNS_MOST_THREADS_DEVICE);
}

/* All but the buffers behind the first. */
static int device_make(struct unshard_device *d, struct uns_err *err)
{
	const struct uns_cuda *cuda = &d->cuda;
	struct uns_near near = { 0 };

	UNS_TRY(uns_cuda_load(&d->cuda, d->cuda.ordinal, err));
	d->loaded = true;
	UNS_TRY(device_set_current(d, err));
	UNS_TRY(uns_cuda_check(cuda, cuda->StreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "making a stream",
			       err));
	uns_near_find(cuda, &near);
	uns_near_choose(&near, &d->processors);
	uns_near_take_memory(&near); /* this thread takes nothing but the buffers, and CUDA has begun its own */
	UNS_TRY(uns_pinned_new(cuda, d->opt.n_buffers, d->opt.buffer_bytes, &d->ring, err));
	UNS_TRY(uns_pinned_add(d->ring, err));
	if (!d->opt.n_threads)
		d->opt.n_threads = default_threads(&d->processors);
	return uns_pool_new(d->opt.n_threads - 1, &d->processors, &d->pool,
			    err); /* a transfer's own thread works too */
}

/* Meanwhile transfers use those that are pinned. Where no more memory can be pinned, they have fewer. */
static void pin_the_others(struct unshard_device *d)
{
	unsigned i;

	for (i = 1; i < d->opt.n_buffers; i++)
		if (uns_pinned_add(d->ring, NULL) < 0)
			return;
}

static void device_unmake(struct unshard_device *d)
{
	if (!d->loaded)
		return;
	d->cuda.SetDevice(d->cuda.ordinal); /* should it fail, all that can be freed is freed nevertheless */
	uns_pinned_free(d->ring);
	if (d->stream)
		d->cuda.StreamDestroy(d->stream);
}

void device_wait(struct unshard_device *d, enum device_progress progress)
{
	pthread_mutex_lock(&d->lock);
	while (d->progress < progress)
		pthread_cond_wait(&d->changed, &d->lock);
	pthread_mutex_unlock(&d->lock);
}

static void device_report(struct unshard_device *d, enum device_progress progress)
{
	pthread_mutex_lock(&d->lock);
	d->progress = progress;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

static void *maker_run(void *arg)
{
	struct unshard_device *d = arg;

	d->code = device_make(d, &d->err);
	device_report(d, DEVICE_MADE);
	if (d->code == 0)
		pin_the_others(d);
	device_report(d, DEVICE_PINNED);
	device_wait(d, DEVICE_CLOSING);
	device_unmake(d);
	return NULL;
}

/* -- */

static void device_drop(struct unshard_device *d)
{
	uns_pool_free(d->pool);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->changed);
	free(d);
}

static int device_begin(struct unshard_device *d, const struct unshard_device_options *options, struct uns_err *err)
{
	int failed;

	UNS_TRY(take_options(d, options, err));
	uns_processors_take(&d->processors);
	failed = uns_thread_begin(&d->maker, &d->processors, maker_run, d);
	return failed ? uns_fail(err, -failed, "no thread for CUDA: %s", strerror(failed)) : 0;
}

int unshard_device_open(int ordinal, const struct unshard_device_options *options, unshard_device **out,
			struct unshard_error *error)
{
	struct unshard_device *d = calloc(1, sizeof(*d));
	struct uns_err err = { 0 };
	int code;

	if (!d)
		return give_error(error, &err, uns_oom(&err));
	d->cuda.ordinal = ordinal;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	code = device_begin(d, options, &err);
	if (code < 0) {
		device_drop(d);
		return give_error(error, &err, code);
	}
	device_wait(d, DEVICE_MADE);
	code = d->code;
	err = d->err;
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
	device_wait(d, DEVICE_PINNED);
	device_report(d, DEVICE_CLOSING);
	pthread_join(d->maker, NULL);
	device_drop(d);
}
