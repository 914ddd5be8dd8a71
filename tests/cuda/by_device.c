/* All of unit/test_tensors.c once more, each tensor and each box by way of a GPU's memory: every checkpoint that real
 * frameworks wrote for the golden files, against what the frameworks themselves say of it. */
#include "unshard.h"

static int read_by_device(const unshard_tensors *tensors, size_t i, const uint64_t *lo,
			  const uint64_t *len, enum unshard_dtype dtype, void *buf,
			  size_t buf_bytes, struct unshard_error *err);

#define unshard_tensor_read read_by_device
#include "unit/test_tensors.c"

/* Few small buffers, so that boxes are cut, share buffers, and have to wait for them. The caller's buffer is the
 * GPU's memory: there is no other kind here. */
static int read_by_device(const unshard_tensors *tensors, size_t i, const uint64_t *lo,
			  const uint64_t *len, enum unshard_dtype dtype, void *buf,
			  size_t buf_bytes, struct unshard_error *err)
{
	const struct unshard_device_options options = { UNSHARD_DEVICE_OPTIONS_INIT,
							.buffer_bytes = 4096, .n_buffers = 3,
							.n_threads = 2 };
	const struct unshard_device_box box = {
		UNSHARD_DEVICE_BOX_INIT, i, lo, len, dtype, buf, buf_bytes
	};
	unshard_device *device;
	unshard_transfer *transfer;
	int code = unshard_device_open(0, &options, &device, err);

	if (code < 0)
		return code;
	code = unshard_device_read(device, tensors, &box, 1, NULL, &transfer, err);
	if (code == 0) {
		code = unshard_transfer_wait(transfer, err);
		unshard_transfer_free(transfer);
	}
	unshard_device_close(device);
	return code;
}
