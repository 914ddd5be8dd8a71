/* Runs a fuzz target over the files named on the command line, for compilers without libFuzzer. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static uint8_t *read_all(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = NULL;
	long len;

	if (!f)
		return NULL;
	if (fseek(f, 0, SEEK_END) == 0 && (len = ftell(f)) >= 0) {
		rewind(f);
		*size = (size_t)len;
		bytes = malloc(*size ? *size : 1); /* exact, so that a sanitizer sees overruns */
		if (bytes && fread(bytes, 1, *size, f) != *size) {
			free(bytes);
			bytes = NULL;
		}
	}
	fclose(f);
	return bytes;
}

int main(int argc, char **argv)
{
	size_t size = 0;
	uint8_t *bytes;
	int i;

	for (i = 1; i < argc; i++) {
		bytes = read_all(argv[i], &size);
		if (!bytes) {
			fprintf(stderr, "%s: cannot be read\n", argv[i]);
			return 1;
		}
		LLVMFuzzerTestOneInput(bytes, size);
		free(bytes);
	}
	return argc > 1 ? 0 : 1;
}
