#include "device/runtime.h"

#include <stddef.h>

#include "base/late_library.h"

/* By the oldest driver that each runs with; 11 last, since it knows fewer GPUs. */
static const char *const names[] = { "libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0" };
enum { N_NAMES = sizeof(names) / sizeof(*names) };

static int find_functions(struct uns_cuda *cuda, void *library, struct uns_err *err)
{
	static const struct uns_late_function functions[] = {
#define UNS_CUDA_ROW(name) { "cuda" #name, offsetof(struct uns_cuda, name) },
		UNS_CUDA_FUNCTIONS(UNS_CUDA_ROW)
#undef UNS_CUDA_ROW
	};
	const char *missing = uns_late_functions(library, functions, sizeof(functions) / sizeof(*functions), cuda);

	if (missing)
		return uns_fail(err, -ENODEV, "GPU %d: %s has no function %s; install the CUDA runtime 11, 12 or 13",
				cuda->ordinal, cuda->library, missing);
	return 0;
}

static int find_gpu(const struct uns_cuda *cuda, struct uns_err *err)
{
	int n = 0;

	UNS_TRY(uns_cuda_check(cuda, cuda->GetDeviceCount(&n), "looking for GPUs", err));
	if (cuda->ordinal < 0 || cuda->ordinal >= n)
		return uns_fail(err, -ENODEV,
				"GPU %d: CUDA finds %d GPUs, numbered from 0; CUDA_VISIBLE_DEVICES may hide others",
				cuda->ordinal, n);
	return 0;
}

int uns_cuda_load(struct uns_cuda *cuda, int ordinal, struct uns_err *err)
{
	void *library;

	cuda->ordinal = ordinal;
	library = uns_late_library(names, N_NAMES, &cuda->library);
	if (!library)
		return uns_fail(err, -ENODEV,
				"GPU %d: no CUDA runtime was found (libcudart.so.12, .13 or .11.0); install one, or "
				"name its directory in LD_LIBRARY_PATH",
				ordinal);
	UNS_TRY(find_functions(cuda, library, err));
	return find_gpu(cuda, err);
}

int uns_cuda_check(const struct uns_cuda *cuda, cudaError_t code, const char *what, struct uns_err *err)
{
	if (code == cudaSuccess)
		return 0;
	cuda->GetLastError(); /* else the next call in this thread would report the failure as its own */
	switch (code) {
	case cudaErrorInsufficientDriver:
		return uns_fail(err, -ENODEV,
				"GPU %d: the NVIDIA driver is missing, or too old for %s; install a newer driver",
				cuda->ordinal, cuda->library);
	case cudaErrorNoDevice:
		return uns_fail(
			err, -ENODEV,
			"GPU %d: CUDA finds no GPU; nvidia-smi lists them, and CUDA_VISIBLE_DEVICES may hide them",
			cuda->ordinal);
	case cudaErrorStubLibrary:
	case cudaErrorSystemNotReady:
	case cudaErrorSystemDriverMismatch:
		return uns_fail(err, -ENODEV, "GPU %d: the NVIDIA driver cannot be used: %s", cuda->ordinal,
				cuda->GetErrorString(code));
	case cudaErrorMemoryAllocation:
		return uns_fail(err, -ENOMEM, "GPU %d: %s: out of memory", cuda->ordinal, what);
	default:
		return uns_fail(err, -EIO, "GPU %d: %s: %s (%s)", cuda->ordinal, what, cuda->GetErrorString(code),
				cuda->GetErrorName(code));
	}
}
