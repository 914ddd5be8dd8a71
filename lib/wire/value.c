/* Lookups in value trees. Knows nothing of where the values came from. */
#include "wire/value.h"

#include <inttypes.h>
#include <string.h>

static bool is_seq(const struct uns_value *v)
{
	return v && (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE || v->kind == UNS_VALUE_SET);
}

static bool is_text(const struct uns_value *v, const char *text, size_t len)
{
	return v->kind == UNS_VALUE_STR && v->n == len && memcmp(v->bytes, text, len) == 0;
}

size_t uns_value_n_items(const struct uns_value *v)
{
	if (is_seq(v) || (v && v->kind == UNS_VALUE_RECORD))
		return v->n;
	return v && v->kind == UNS_VALUE_DICT ? 2 * (size_t)v->n : 0;
}

const struct uns_value *uns_value_get(const struct uns_value *dict, const char *key)
{
	size_t i, len = strlen(key);

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return NULL;
	for (i = dict->n; i > 0; i--)
		if (is_text(dict->pair[i - 1].key, key, len))
			return dict->pair[i - 1].value;
	return NULL;
}

const struct uns_value *uns_value_get_number(const struct uns_value *dict, uint64_t key)
{
	uint64_t number;
	size_t i;

	if (!dict || dict->kind != UNS_VALUE_DICT)
		return NULL;
	for (i = dict->n; i > 0; i--)
		if (uns_value_u64(dict->pair[i - 1].key, &number) && number == key)
			return dict->pair[i - 1].value;
	return NULL;
}

const struct uns_value *uns_value_at(const struct uns_value *seq, size_t i)
{
	return is_seq(seq) && i < seq->n ? seq->item[i] : NULL;
}

const struct uns_value *uns_value_field(const struct uns_value *object, const char *name)
{
	const struct uns_value *state = object ? object->state : NULL, *found;
	size_t i, len = strlen(name);

	if (object && object->kind == UNS_VALUE_RECORD) {
		for (i = object->n; i > 0; i--)
			if (is_text(object->names->item[i - 1], name, len))
				return object->item[i - 1];
		return NULL;
	}
	if (!state || state->kind != UNS_VALUE_TUPLE || state->n != 2)
		return uns_value_get(state, name);
	found = uns_value_get(state->item[1], name);
	return found ? found : uns_value_get(state->item[0], name);
}

bool uns_value_int(const struct uns_value *v, int64_t *out)
{
	if (!v || (v->kind != UNS_VALUE_INT && v->kind != UNS_VALUE_BOOL))
		return false;
	*out = v->kind == UNS_VALUE_INT ? v->i : v->b;
	return true;
}

bool uns_value_u64(const struct uns_value *v, uint64_t *out)
{
	if (!v || v->kind != UNS_VALUE_INT || v->i < 0)
		return false;
	*out = (uint64_t)v->i;
	return true;
}

bool uns_value_float(const struct uns_value *v, double *out)
{
	if (!v || (v->kind != UNS_VALUE_FLOAT && v->kind != UNS_VALUE_INT))
		return false;
	*out = v->kind == UNS_VALUE_FLOAT ? v->f : (double)v->i;
	return true;
}

const char *uns_value_str(const struct uns_value *v)
{
	if (!v || v->kind != UNS_VALUE_STR || memchr(v->bytes, '\0', v->n))
		return NULL;
	return v->bytes;
}

char *uns_value_child_name(struct uns_arena *arena, const char *name, const struct uns_value *key, size_t i)
{
	const char *dot = *name ? "." : "", *text = uns_value_str(key);
	int64_t number = (int64_t)i;

	if (text)
		return uns_arena_printf(arena, "%s%s%s", name, dot, text);
	uns_value_int(key, &number);
	return uns_arena_printf(arena, "%s%s%" PRId64, name, dot, number);
}

bool uns_value_is(const struct uns_value *v, const char *cls)
{
	return v && v->cls && strcmp(v->cls, cls) == 0;
}

/* *nodes and depth: how many more are allowed. */
static bool value_walk(const struct uns_value *v, size_t *nodes, unsigned depth)
{
	size_t i, n;

	if (!v)
		return true;
	if (*nodes == 0 || depth == 0)
		return false;
	--*nodes;
	if (v->state && !value_walk(v->state, nodes, depth - 1))
		return false;
	n = uns_value_n_items(v);
	for (i = 0; i < n; i++)
		if (!value_walk(v->item[i], nodes, depth - 1))
			return false;
	return v->kind != UNS_VALUE_OBJECT || value_walk(v->object.args, nodes, depth - 1);
}

bool uns_value_fits(const struct uns_value *v, size_t max_nodes, unsigned max_depth)
{
	return value_walk(v, &max_nodes, max_depth);
}

bool uns_value_dims(const struct uns_value *v, uint64_t *dims, size_t cap, size_t *n)
{
	bool is_size = v && v->kind == UNS_VALUE_OBJECT && uns_value_is(v, "torch.Size");
	const struct uns_value *seq = is_size ? uns_value_at(v->object.args, 0) : v;
	size_t i;

	if (!seq || (seq->kind != UNS_VALUE_TUPLE && seq->kind != UNS_VALUE_LIST) || seq->n > cap)
		return false;
	for (i = 0; i < seq->n; i++)
		if (!uns_value_u64(seq->item[i], &dims[i]))
			return false;
	*n = seq->n;
	return true;
}
