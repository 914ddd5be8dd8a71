/* wire/pickle.c: any bytes. What parses is looked at from end to end, within bounds. */
#include "fuzz.h"

#include <stdlib.h>

#include "wire/dtype.h"
#include "wire/pickle.h"

static void touch(const struct uns_value *v)
{
	uint64_t dims[UNS_MAX_DIMS];
	double f;
	size_t i, n;

	if (!v)
		return;
	uns_value_float(v, &f);
	uns_value_str(v);
	uns_value_dims(v, dims, UNS_MAX_DIMS, &n);
	touch(v->state);
	if (v->kind == UNS_VALUE_OBJECT)
		touch(v->object.args);
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->dict.n; i++) {
		touch(v->dict.key[i]);
		touch(v->dict.v[i]);
	}
	for (i = 0; uns_value_at(v, i); i++)
		touch(uns_value_at(v, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_span in = uns_span_of(data, size);
	struct uns_err err = { 0 };
	const struct uns_value *v;
	int rc = uns_pickle_parse(&in, &arena, &v, &err);

	if ((rc < 0) != (err.code < 0) || rc > 0)
		abort();
	if (rc == 0 && uns_value_fits(v, 100000, 100))
		touch(v);
	uns_arena_fini(&arena);
	return 0;
}
