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

static void check_names(const struct uns_pickle_trace *was, struct uns_text *renamed, struct uns_arena *arena)
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
	if (to && uns_pickle_rename(uns_span_of(data, (size_t)(in.p - data)), &trace, to, &out, NULL) == 0)
		check_names(&trace, &out, &arena);
	free(to);
	uns_text_fini(&out);
	uns_arena_fini(&arena);
}

static bool same(const struct uns_value *a, const struct uns_value *b);

static bool same_items(const struct uns_value **a, const struct uns_value **b, size_t n)
{
	size_t i = 0;

	while (i < n && same(a[i], b[i]))
		i++;
	return i == n;
}

static bool same_fields(const struct uns_value *object, const struct uns_value *record)
{
	const struct uns_value *state = object->state;
	size_t i = 0;

	if (object->kind != UNS_VALUE_OBJECT || object->object.args->n || state->n != record->n ||
	    record->names->n != record->n)
		return false;
	while (i < record->n && same(state->pair[i].key, record->names->item[i]) &&
	       same(state->pair[i].value, record->item[i]))
		i++;
	return i == record->n;
}

static bool same_content(const struct uns_value *a, const struct uns_value *b)
{
	switch (a->kind) {
	case UNS_VALUE_BOOL:
		return a->b == b->b;
	case UNS_VALUE_INT:
	case UNS_VALUE_FLOAT:
		return a->i == b->i;
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
	case UNS_VALUE_BIGINT:
		return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
	case UNS_VALUE_OBJECT:
		return same(a->object.args, b->object.args);
	default:
		return a->n == b->n && same_items(a->item, b->item, uns_value_n_items(a));
	}
}

static bool same(const struct uns_value *a, const struct uns_value *b)
{
	if (!a || !b)
		return a == b;
	if (!a->cls != !b->cls || (a->cls && strcmp(a->cls, b->cls) != 0))
		return false;
	if (b->kind == UNS_VALUE_RECORD)
		return same_fields(a, b);
	return a->kind == b->kind && same_content(a, b) && same(a->state, b->state);
}

/* With records the tree is the same, but for what they stand for. */
static void check_records(const uint8_t *data, size_t size, const struct uns_value *v, const struct uns_err *was)
{
	struct uns_span in = uns_span_of(data, size);
	struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *records;
	struct uns_err err = { 0 };

	uns_pickle_parse_records(&in, &arena, &records, &err);
	if (err.code != was->code || strcmp(err.text, was->text) != 0 || (v && !same(v, records)))
		abort();
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
	if (rc == 0 && !uns_value_fits(v, 100000, 100))
		v = NULL; /* a tree too deep or too large to be walked */
	if (rc == 0 && v)
		touch(v);
	check_records(data, size, rc == 0 ? v : NULL, &err);
	if (rc == 0)
		rename_names(data, size);
	uns_arena_fini(&arena);
	return 0;
}
