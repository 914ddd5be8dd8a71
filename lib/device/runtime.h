/* The CUDA runtime as this library uses it: loaded when it is first needed, so that one binary runs with and without
 * a driver. */
#ifndef UNS_DEVICE_RUNTIME_H
#define UNS_DEVICE_RUNTIME_H

#include <cuda_runtime_api.h>

#include "base/error.h"

/* All that is called. Their signatures are the same in CUDA 11 to 13. */
/* clang-format off */
#define UNS_CUDA_FUNCTIONS(X) \
	X(GetDeviceCount) X(DeviceGetPCIBusId) X(SetDevice) X(HostAlloc) \
	X(FreeHost) X(StreamCreateWithFlags) X(StreamDestroy) X(StreamSynchronize) \
	X(EventCreateWithFlags) X(EventDestroy) X(EventRecord) X(EventSynchronize) \
	X(MemcpyAsync) X(GetLastError) X(GetErrorName) X(GetErrorString)
/* clang-format on */

struct uns_cuda {
	int ordinal;
	const char *library; /* "libcudart.so.12" */
#define UNS_CUDA_MEMBER(name) __typeof__(&cuda##name) name;
	UNS_CUDA_FUNCTIONS(UNS_CUDA_MEMBER)
#undef UNS_CUDA_MEMBER
};

/* Load the runtime for this GPU, and see that there is one. It stays loaded. -ENODEV. */
int uns_cuda_load(struct uns_cuda *cuda, int ordinal, struct uns_err *err);

/* 0, or the failure of a call as code and sentence: "GPU 0: WHAT: ...". CUDA forgets the failure, as far as it
 * lets itself. */
int uns_cuda_check(const struct uns_cuda *cuda, cudaError_t code, const char *what, struct uns_err *err);

#endif
