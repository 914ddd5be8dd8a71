/* Reads lists of parameters, and goes through several of them together. */
#include "parallel/shapes.h"

#include <string.h>

void uns_zero_cursor_go(struct uns_zero_cursor *cursor, const char *name)
{
	const struct uns_zero_param *p = cursor->shapes->v + cursor->next;

	cursor->now = cursor->next < cursor->shapes->n && strcmp(p->name, name) == 0 ? p : NULL;
	cursor->next += cursor->now != NULL;
}

static int parse_param(const struct uns_value *key, const struct uns_value *v, struct uns_zero_param *out,
		       struct uns_err *err)
{
	size_t n;

	out->name = uns_value_str(key);
	if (!out->name)
		return uns_fail(err, -EBADMSG, "param_shapes has a key that is not a name");
	if (!uns_value_dims(v, out->shape.dim, UNS_MAX_DIMS, &n))
		return uns_fail(err, -ENOTSUP,
				"param_shapes has no shape of at most %d dimensions "
				"for %s",
				UNS_MAX_DIMS, out->name);
	out->shape.n = (uint32_t)n;
	/* As the widest type that a view has it in. */
	UNS_TRY(uns_shape_check(&out->shape, UNS_F64, err));
	out->elems = uns_shape_elems(&out->shape);
	return 0;
}

int uns_zero_shapes_parse(const struct uns_value *dict, struct uns_arena *arena, struct uns_zero_shapes *out,
			  struct uns_err *err)
{
	size_t i;

	*out = (struct uns_zero_shapes){ 0 };
	if (!dict || dict->kind == UNS_VALUE_NONE)
		return 0;
	if (dict->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "param_shapes is not a dict");
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_zero_param, dict->n), err);
	for (i = 0; i < dict->n; i++)
		UNS_TRY(parse_param(dict->pair[i].key, dict->pair[i].value, &out->v[i], err));
	out->n = dict->n;
	return 0;
}

int uns_zero_shapes_parse_list(const struct uns_value *list, struct uns_arena *arena, struct uns_zero_shapes **out,
			       size_t *n, struct uns_err *err)
{
	bool bare = list && list->kind == UNS_VALUE_DICT;
	size_t i, count;

	*n = 0;
	if (!list || list->kind == UNS_VALUE_NONE)
		return 0;
	if (!bare && list->kind != UNS_VALUE_LIST)
		return uns_fail(err, -ENOTSUP, "param_shapes is not a list");
	count = bare ? 1 : list->n;
	UNS_TRY_ALLOC(*out = UNS_NEW_N(arena, struct uns_zero_shapes, count), err);
	for (i = 0; i < count; i++)
		UNS_TRY(uns_zero_shapes_parse(bare ? list : list->item[i], arena, &(*out)[i], err));
	*n = count;
	return 0;
}
