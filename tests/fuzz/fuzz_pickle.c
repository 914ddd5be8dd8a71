/* wire/pickle.c: any bytes. What parses is looked at from end to end, within bounds. Every second
 * name in it, renamed, is the new one, and all others are what they were. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "wire/dtype.h"
#include "wire/pickle_rename.h"

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
	for (i = 0; v->kind == UNS_VALUE_DICT && i < v->n; i++) {
		touch(v->pair[i].key);
		touch(v->pair[i].value);
	}
	for (i = 0; uns_value_at(v, i); i++)
		touch(uns_value_at(v, i));
}

static void check_names(const struct uns_pickle_trace *was, struct uns_text *renamed,
			struct uns_arena *arena)
{
	struct uns_span in = uns_span_of(renamed->p, renamed->len);
	struct uns_pickle_trace is = { 0 };
	const struct uns_value *v;
	struct uns_err err = { 0 };
	size_t i;

	if (uns_pickle_parse_traced(&in, arena, &v, &is, &err) < 0) {
		/* What a pickle may ask for depends on its size. */
		if (err.code == -EBADMSG && !strstr(err.text, "memo number is too large"))
			abort();
		return;
	}
	if (is.n != was->n)
		abort();
	for (i = 0; i < is.n; i++)
		if (strcmp(is.v[i].value->cls, i % 2 ? "a.b" : was->v[i].value->cls) != 0)
			abort();
}

static void rename_names(const uint8_t *data, size_t size)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text out = UNS_TEXT_INIT;
	struct uns_pickle_trace trace = { 0 };
	struct uns_span in = uns_span_of(data, size);
	const struct uns_value *v;
	const char **to = NULL;
	size_t i;

	if (uns_pickle_parse_traced(&in, &arena, &v, &trace, NULL) == 0)
		to = calloc(trace.n + 1, sizeof(*to));
	for (i = 0; to && i < trace.n; i++)
		to[i] = i % 2 ? "a.b" : NULL;
	if (to && uns_pickle_rename(uns_span_of(data, (size_t)(in.p - data)), &trace, to, &out,
				    NULL) == 0)
		check_names(&trace, &out, &arena);
	free(to);
	uns_text_fini(&out);
	uns_arena_fini(&arena);
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
	if (rc == 0)
		rename_names(data, size);
	uns_arena_fini(&arena);
	return 0;
}
