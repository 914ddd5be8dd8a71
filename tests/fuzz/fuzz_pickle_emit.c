/* wire/pickle_emit.c and value_new.c: what a pickle holds, written and read again, is written the same; so is
 * a copy of it. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "wire/pickle.h"
#include "wire/pickle_emit.h"
#include "wire/value_new.h"

enum { MAX_NODES = 10000, MAX_DEPTH = 64 };

static void same(const struct uns_value *v, const struct uns_text *want)
{
	struct uns_text again = UNS_TEXT_INIT;

	if (uns_pickle_emit(v, NULL, 0, NULL, &again, NULL) < 0 || again.len != want->len ||
	    memcmp(again.p, want->p, want->len) != 0)
		abort();
	uns_text_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_span in = uns_span_of(data, size), written;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text out = UNS_TEXT_INIT;
	const struct uns_value *v, *copy, *back;
	struct uns_err err = { 0 };

	if (uns_pickle_parse(&in, &arena, &v, NULL) == 0 && uns_value_fits(v, MAX_NODES, MAX_DEPTH) &&
	    uns_pickle_emit(v, NULL, 0, NULL, &out, NULL) == 0) {
		copy = uns_value_copy(&arena, v);
		if (!copy)
			abort();
		same(copy, &out);
		written = uns_span_of(out.p, out.len);
		if (uns_pickle_parse(&written, &arena, &back, &err) < 0 || uns_span_left(&written))
			abort();
		same(back, &out);
	}
	uns_text_fini(&out);
	uns_arena_fini(&arena);
	return 0;
}
