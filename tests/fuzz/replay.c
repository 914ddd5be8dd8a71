/* Runs a fuzz target over the files of the directories named on the command line, for compilers without
 * libFuzzer, whose options are passed over. */
#include <dirent.h>
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

static void run_file(const char *dir, const char *name)
{
	char path[4096];
	size_t size = 0;
	uint8_t *bytes;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	bytes = read_all(path, &size);
	if (!bytes) {
		fprintf(stderr, "%s: cannot be read\n", path);
		exit(1);
	}
	LLVMFuzzerTestOneInput(bytes, size);
	free(bytes);
}

static int run_dir(const char *dir)
{
	DIR *entries = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (entries && (e = readdir(entries)))
		if (e->d_name[0] != '.') {
			run_file(dir, e->d_name);
			n++;
		}
	if (entries)
		closedir(entries);
	return n;
}

int main(int argc, char **argv)
{
	int i, n = 0;

	for (i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			n += run_dir(argv[i]);
	return n ? 0 : 1;
}
