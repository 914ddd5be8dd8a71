/* A machine whose CUDA runtime cannot be loaded (none), or lacks a function (without_names). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unshard.h"

int main(int argc, char **argv)
{
	const char *sentence =
		argc > 1 && !strcmp(argv[1], "none")
			? "GPU 0: no CUDA runtime was found (libcudart.so.12, .13 or .11.0); install one, "
			  "or name its directory in LD_LIBRARY_PATH"
			: "GPU 0: libcudart.so.12 has no function cudaGetErrorName; install the CUDA "
			  "runtime 11, 12 or 13";
	struct unshard_error err = { 0 };
	unshard_device *device = NULL;
	int code = unshard_device_open(0, NULL, &device, &err);

	puts(err.text);
	return code != -ENODEV || err.code != -ENODEV || strcmp(err.text, sentence) != 0 || device;
}
