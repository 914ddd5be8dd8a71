/* Copies the parts of a value tree that change. The caller says what replaces what. */
#include "wire/value_map.h"

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 64 };

static int map(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
	       const struct uns_value **out, struct uns_err *err);

/* If nothing in `of` changes, *out is `of` itself. */
static int map_all(const struct uns_value **of, size_t n, const struct uns_value_mapper *m,
		   struct uns_arena *arena, const struct uns_value ***out, struct uns_err *err)
{
	const struct uns_value **made = UNS_NEW_N(arena, const struct uns_value *, n);
	size_t i;

	if (!made)
		return uns_oom(err);
	*out = of;
	for (i = 0; i < n; i++) {
		UNS_TRY(map(of[i], m, arena, &made[i], err));
		if (made[i] != of[i])
			*out = made;
	}
	return 0;
}

static int map_inside(const struct uns_value *v, const struct uns_value_mapper *m,
		      struct uns_arena *arena, const struct uns_value **out, struct uns_err *err)
{
	bool dict = v->kind == UNS_VALUE_DICT;
	const struct uns_value **of = dict ? v->dict.v : v->seq.v, **inside;
	struct uns_value *copy;

	UNS_TRY(map_all(of, dict ? v->dict.n : v->seq.n, m, arena, &inside, err));
	if (inside == of)
		return 0;
	copy = UNS_NEW(arena, struct uns_value);
	if (!copy)
		return uns_oom(err);
	*copy = *v;
	if (dict)
		copy->dict.v = inside;
	else
		copy->seq.v = inside;
	*out = copy;
	return 0;
}

static int map(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
	       const struct uns_value **out, struct uns_err *err)
{
	int code = m->replace(m->ctx, v, out, err);

	if (code)
		return code < 0 ? code : 0;
	*out = v;
	if (v->kind != UNS_VALUE_DICT && v->kind != UNS_VALUE_LIST && v->kind != UNS_VALUE_TUPLE)
		return 0;
	return map_inside(v, m, arena, out, err);
}

int uns_value_map(const struct uns_value *v, const struct uns_value_mapper *m,
		  struct uns_arena *arena, const struct uns_value **out, struct uns_err *err)
{
	if (!uns_value_fits(v, MAX_NODES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "a value is nested too deeply");
	return map(v, m, arena, out, err);
}
