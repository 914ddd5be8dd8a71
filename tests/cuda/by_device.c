/* All of unit/test_tensors.c once more, each tensor and each box by way of a GPU's memory: every checkpoint that real
 * frameworks wrote for the golden files, against what the frameworks themselves say of it. */
#include "unshard.h"

static int read_by_device(const unshard_tensors *tensors, size_t i, const uint64_t *lo, const uint64_t *len,
			  enum unshard_dtype dtype, void *buf, size_t buf_bytes, struct unshard_error *err);

#define unshard_tensor_read read_by_device
#include "unit/test_tensors.c"

static unshard_device *device;

/* Few small buffers, so that boxes are cut, share buffers, and have to wait for them. */
static void open_device(void)
{
	const struct unshard_device_options options = { UNSHARD_DEVICE_OPTIONS_INIT, .buffer_bytes = 4096,
							.n_buffers = 3, .n_threads = 2, .way = WAY };
	struct unshard_error err = { 0 };

	if (unshard_device_open(0, &options, &device, &err) < 0)
		fail_msg("%s", err.text);
}

/* The caller's buffer is the GPU's memory: there is no other kind here. */
static int read_by_device(const unshard_tensors *tensors, size_t i, const uint64_t *lo, const uint64_t *len,
			  enum unshard_dtype dtype, void *buf, size_t buf_bytes, struct unshard_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct unshard_device_box box = { UNSHARD_DEVICE_BOX_INIT, i, lo, len, dtype, buf, buf_bytes };
	unshard_transfer *transfer;
	int code;

	pthread_once(&once, open_device);
	code = unshard_device_read(device, tensors, &box, 1, NULL, &transfer, err);
	if (code == 0) {
		code = unshard_transfer_wait(transfer, err);
		unshard_transfer_free(transfer);
	}
	return code;
}
