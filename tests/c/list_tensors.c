/* libunshard as a program of its own sees it: nothing but unshard.h and libc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "unshard.h"

int main(int argc, char **argv) /* SOURCE CHECKPOINT VIEW TENSOR: a matrix */
{
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true };
	const struct unshard_tensor *t;
	struct unshard_error err = { 0 };
	unshard_tensors *tensors = NULL;
	unshard *u = NULL;
	uint64_t lo[2] = { 1, 2 }, len[2] = { 3, 4 };
	char *whole = NULL, box[3 * 4 * 16];
	size_t i, e, row;
	int bad = argc != 5 || unshard_open(argv[1], &options, &u, &err) < 0 ||
		  unshard_tensors_open(u, argv[2], argv[3], &tensors, &err) < 0;

	for (i = 0; !bad && (t = unshard_tensors_at(tensors, i)) != NULL; i++)
		printf("%s %s %s %llu\n", t->name, unshard_role_name(t->role), unshard_dtype_name(t->dtype),
		       (unsigned long long)t->size_bytes);
	bad = bad || unshard_tensors_find(tensors, argv[4], NULL, &i, &err) < 0;
	if (!bad) {
		t = unshard_tensors_at(tensors, i);
		e = unshard_dtype_size(t->dtype);
		whole = malloc(t->size_bytes);
		bad = unshard_tensor_read(tensors, i, NULL, NULL, t->dtype, whole, t->size_bytes, &err) ||
		      unshard_tensor_read(tensors, i, lo, len, t->dtype, box, 12 * e, &err);
		for (row = 0; !bad && row < 3; row++)
			bad = memcmp(box + row * 4 * e, whole + ((row + 1) * t->shape[1] + 2) * e, 4 * e);
	}
	puts(bad ? err.text : "the box is what the whole says");
	unshard_tensors_close(tensors);
	unshard_close(u);
	free(whole);
	return bad != 0;
}
