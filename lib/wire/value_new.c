/* Constructors of plain values. */
#include "wire/value_new.h"

#include <string.h>

static struct uns_value *value_new(struct uns_arena *arena, struct uns_value is)
{
	struct uns_value *v = UNS_NEW(arena, struct uns_value);

	if (v)
		*v = is;
	return v;
}

#define NEW(...) value_new(arena, (struct uns_value){ __VA_ARGS__ })

struct uns_value *uns_value_new_none(struct uns_arena *arena)
{
	return NEW(.kind = UNS_VALUE_NONE);
}

struct uns_value *uns_value_new_bool(struct uns_arena *arena, bool b)
{
	return NEW(.kind = UNS_VALUE_BOOL, .b = b);
}

struct uns_value *uns_value_new_int(struct uns_arena *arena, int64_t i)
{
	return NEW(.kind = UNS_VALUE_INT, .i = i);
}

struct uns_value *uns_value_new_float(struct uns_arena *arena, double f)
{
	return NEW(.kind = UNS_VALUE_FLOAT, .f = f);
}

struct uns_value *uns_value_new_str(struct uns_arena *arena, const char *s)
{
	arena->failed |= !s;
	return s ? NEW(.kind = UNS_VALUE_STR, .bytes = s, .n = (uint32_t)strlen(s)) : NULL;
}

struct uns_value *uns_value_new_tensor(struct uns_arena *arena, size_t index)
{
	return NEW(.kind = UNS_VALUE_TENSOR, .tensor = index);
}

struct uns_value *uns_value_new_global(struct uns_arena *arena, const char *cls)
{
	return NEW(.kind = UNS_VALUE_GLOBAL, .cls = cls);
}

struct uns_value *uns_value_new_object(struct uns_arena *arena, const char *cls, const struct uns_value *args,
				       const struct uns_value *state)
{
	return args ? NEW(.kind = UNS_VALUE_OBJECT, .cls = cls, .object.args = args, .state = state) : NULL;
}

static struct uns_value *seq_new(struct uns_arena *arena, enum uns_value_kind kind, size_t cap)
{
	struct uns_value *v = NEW(.kind = kind);

	if (v && !(v->item = UNS_NEW_N(arena, const struct uns_value *, cap)))
		return NULL;
	return v;
}

struct uns_value *uns_value_new_tuple(struct uns_arena *arena, size_t cap)
{
	return seq_new(arena, UNS_VALUE_TUPLE, cap);
}

struct uns_value *uns_value_new_list(struct uns_arena *arena, size_t cap)
{
	return seq_new(arena, UNS_VALUE_LIST, cap);
}

struct uns_value *uns_value_new_size(struct uns_arena *arena, const uint64_t *dim, uint32_t n)
{
	struct uns_value *dims = uns_value_new_tuple(arena, n);
	struct uns_value *args = uns_value_new_tuple(arena, 1);
	uint32_t i;

	for (i = 0; i < n; i++)
		if (!uns_value_append(dims, uns_value_new_int(arena, dim ? (int64_t)dim[i] : 0)))
			return NULL;
	return uns_value_append(args, dims) ? uns_value_new_object(arena, "torch.Size", args, NULL) : NULL;
}

struct uns_value *uns_value_new_dict(struct uns_arena *arena, size_t cap)
{
	struct uns_value *v = NEW(.kind = UNS_VALUE_DICT);

	if (v && !(v->pair = UNS_NEW_N(arena, struct uns_pair, cap)))
		return NULL;
	return v;
}

bool uns_value_append(struct uns_value *list, const struct uns_value *v)
{
	if (!list || !v)
		return false;
	list->item[list->n++] = v;
	return true;
}

bool uns_value_put(struct uns_value *dict, const struct uns_value *key, const struct uns_value *v)
{
	if (!dict || !key || !v)
		return false;
	dict->pair[dict->n].key = key;
	dict->pair[dict->n++].value = v;
	return true;
}

bool uns_value_put_str(struct uns_arena *arena, struct uns_value *dict, const char *name, const struct uns_value *v)
{
	bool put = uns_value_put(dict, uns_value_new_str(arena, name), v);

	arena->failed |= !put;
	return put;
}

struct uns_value *uns_value_new_dict_of(struct uns_arena *arena, const struct uns_value *dict, const char *without,
					size_t more)
{
	size_t i, n = dict && dict->kind == UNS_VALUE_DICT ? dict->n : 0;
	struct uns_value *out = uns_value_new_dict(arena, n + more);
	const char *key;

	for (i = 0; out && i < n; i++) {
		key = without ? uns_value_str(dict->pair[i].key) : NULL;
		if (!key || strcmp(key, without) != 0)
			uns_value_put(out, dict->pair[i].key, dict->pair[i].value); /* there is room */
	}
	return out;
}

/* -- copies -- */

/* uns_value_fits was asked first, so the depth is bounded. */
static const struct uns_value *value_copy(struct uns_arena *arena, const struct uns_value *v)
{
	struct uns_value *out = v ? UNS_NEW(arena, struct uns_value) : NULL;
	const struct uns_value **item;
	size_t i, n;

	if (!out)
		return NULL;
	*out = *v;
	out->cls = v->cls ? uns_arena_str(arena, v->cls) : NULL;
	switch (v->kind) {
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
	case UNS_VALUE_BIGINT:
		out->bytes = uns_arena_strn(arena, v->bytes, v->n);
		break;
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_SET:
	case UNS_VALUE_DICT:
	case UNS_VALUE_RECORD:
		n = uns_value_n_items(v);
		out->item = item = UNS_NEW_N(arena, const struct uns_value *, n);
		for (i = 0; i < n && !arena->failed; i++)
			item[i] = value_copy(arena, v->item[i]);
		break;
	case UNS_VALUE_OBJECT:
		out->object.args = value_copy(arena, v->object.args);
		break;
	case UNS_VALUE_NONE:
	case UNS_VALUE_BOOL:
	case UNS_VALUE_INT:
	case UNS_VALUE_FLOAT:
	case UNS_VALUE_GLOBAL:
	case UNS_VALUE_TENSOR:
		break;
	}
	out->state = arena->failed ? NULL : value_copy(arena, v->state);
	return out;
}

const struct uns_value *uns_value_copy(struct uns_arena *arena, const struct uns_value *v)
{
	enum { MAX_NODES = 1000 * 1000, MAX_DEPTH = 100 };
	const struct uns_value *out;

	if (!uns_value_fits(v, MAX_NODES, MAX_DEPTH))
		return NULL;
	out = value_copy(arena, v);
	return arena->failed ? NULL : out;
}
