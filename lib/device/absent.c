/* unshard_device_* of a library that was built without CUDA's headers: there is no way to get a device, and so
 * none to call the rest with. */
#include "api/errors.h"

int unshard_device_open(int ordinal, const struct unshard_device_options *options, unshard_device **out,
			struct unshard_error *error)
{
	struct uns_err err = { 0 };

	(void)options;
	(void)out;
	return give_error(error, &err,
			  uns_fail(&err, -ENODEV,
				   "GPU %d: this libunshard was built without CUDA; build it with the CUDA toolkit's "
				   "headers (-DUNSHARD_CUDA=ON)",
				   ordinal));
}

void unshard_device_close(unshard_device *device)
{
	(void)device;
}

static int no_device(struct unshard_error *error)
{
	struct uns_err err = { 0 };

	return give_error(error, &err, uns_fail(&err, -ENODEV, "this libunshard was built without CUDA"));
}

int unshard_device_read(unshard_device *device, const unshard_tensors *tensors, const struct unshard_device_box *boxes,
			size_t n, void *const *stream, unshard_transfer **out, struct unshard_error *err)
{
	(void)device, (void)tensors, (void)boxes, (void)n, (void)stream, (void)out;
	return no_device(err);
}

int unshard_transfer_queued(unshard_transfer *transfer, void **event, struct unshard_error *err)
{
	(void)transfer, (void)event;
	return no_device(err);
}

int unshard_transfer_wait(unshard_transfer *transfer, struct unshard_error *err)
{
	(void)transfer;
	return no_device(err);
}

void unshard_transfer_free(unshard_transfer *transfer)
{
	(void)transfer;
}
