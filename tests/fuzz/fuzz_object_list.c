/* object/answers.c: any bytes as a page of a listing, after one that is sound, and as an error. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "object/answers.h"

static void look(const struct uns_object_list *list)
{
	size_t i, n = 0;

	for (i = 0; i < list->n; i++) {
		n += strlen(list->v[i].key) + strlen(list->v[i].etag);
		if (list->v[i].size > INT64_MAX)
			abort();
	}
	if ((list->next && !*list->next) || n > SIZE_MAX / 2)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_object_list list = { 0 };
	struct uns_object_error error;
	struct uns_err err = { 0 };
	int rc = uns_object_list_parse(uns_span_of(data, size), &arena, &list, &err);

	if ((rc < 0) != (err.code < 0))
		abort();
	if (rc == 0)
		look(&list);
	uns_object_error_parse(uns_span_of(data, size), &error);
	if (strlen(error.code) >= sizeof(error.code) || strlen(error.region) >= sizeof(error.region))
		abort();
	uns_arena_fini(&arena);
	return 0;
}
