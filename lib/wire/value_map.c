/* Copies the parts of a value tree that change. The caller decides what replaces what. */
#include "wire/value_map.h"

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 64 };

static int map(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
	       const struct uns_value **out, struct uns_err *err);

static int map_inside(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
		      const struct uns_value **out, struct uns_err *err)
{
	size_t n = uns_value_n_items(v), step = v->kind == UNS_VALUE_DICT ? 2 : 1, i;
	const struct uns_value **inside = UNS_NEW_N(arena, const struct uns_value *, n);
	struct uns_value *copy = UNS_NEW(arena, struct uns_value);
	bool changed = false;

	UNS_TRY_ALLOC(inside && copy, err);
	for (i = 0; i < n; i++)
		inside[i] = v->item[i];
	for (i = step - 1; i < n; i += step) { /* a dict's keys stay */
		UNS_TRY(map(v->item[i], m, arena, &inside[i], err));
		changed |= inside[i] != v->item[i];
	}
	if (!changed)
		return 0;
	*copy = *v;
	copy->item = inside;
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

int uns_value_map(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
		  const struct uns_value **out, struct uns_err *err)
{
	if (!uns_value_fits(v, MAX_NODES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "a value is nested too deeply");
	return map(v, m, arena, out, err);
}
