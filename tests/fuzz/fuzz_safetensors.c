/* wire/safetensors.c: any bytes as a file. What opens must be writable, and open again the same. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/span.h"
#include "wire/safetensors.h"

static void check_again(const struct uns_st_header *h, struct uns_span head, uint64_t data_bytes)
{
	size_t len = uns_span_left(&head);
	uint8_t *file = calloc(1, len + (size_t)data_bytes);
	struct uns_span bytes = uns_span_of(file, len + (size_t)data_bytes);
	struct uns_reader r = uns_reader_of_span(&bytes);
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_st_header again;

	if (!file)
		return;
	memcpy(file, head.p, len);
	if (uns_st_open(&r, &arena, &again, NULL) < 0 || again.n != h->n)
		abort();
	uns_arena_fini(&arena);
	free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(data, size), head;
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_err err = { 0 };
	struct uns_st_header h;
	uint64_t data_bytes;
	int rc = uns_st_open(&r, &arena, &h, &err);

	if ((rc < 0) != (err.code < 0) || rc > 0)
		abort();
	if (rc == 0) {
		if (uns_st_emit(h.v, h.n, &arena, &head, &data_bytes, NULL) < 0)
			abort();
		check_again(&h, head, data_bytes);
	}
	uns_arena_fini(&arena);
	return 0;
}
