/* wire/zip.c: any bytes as an archive. Every record's data must lie inside. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/span.h"
#include "wire/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(data, size);
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_err err = { 0 };
	struct uns_zip zip;
	uint64_t start;
	size_t i;

	if (uns_zip_open(&r, &arena, &zip, &err) == 0) {
		uns_zip_find(&zip, "data.pkl");
		for (i = 0; i < zip.n; i++)
			if (uns_zip_data(&r, &zip.v[i], &start, NULL) == 0 &&
			    !uns_inside(start, zip.v[i].size_bytes, size))
				abort();
	} else if (err.code >= 0) {
		abort();
	}
	uns_arena_fini(&arena);
	return 0;
}
