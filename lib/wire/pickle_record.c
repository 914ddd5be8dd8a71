/* Objects as records: most of a large pickle is objects of few classes, each with a dict of the same few names. The
 * record keeps the names once for all of them, and the dict's memory is used again. */
#include <string.h>

#include "wire/pickle_machine.h"

static bool all_names(const struct uns_value *dict)
{
	size_t i = 0;

	while (i < dict->n && dict->pair[i].key->kind == UNS_VALUE_STR)
		i++;
	return i == dict->n;
}

/* Nothing else can have this dict: no opcode has used it again, nor will. */
static bool is_own_small_dict(const struct uns_value *v)
{
	return v->kind == UNS_VALUE_DICT && !v->cls && !v->uses && !v->fetched && !v->grown && v->n > 0 &&
	       v->n <= UNS_PICKLE_MAX_FIELDS;
}

bool uns_pickle_is_recordable(const struct uns_pickle *m, const struct uns_value *object, const struct uns_value *state)
{
	return m->records && object->kind == UNS_VALUE_OBJECT && object->object.args && !object->object.args->n &&
	       is_own_small_dict(state) && all_names(state);
}

bool uns_pickle_record(struct uns_pickle *m, struct uns_value *object, struct uns_value *state)
{
	const size_t n = state->n;
	struct uns_value *name[UNS_PICKLE_MAX_FIELDS], *names;
	const struct uns_value **value = uns_pickle_alloc(m, n, sizeof(*value));
	size_t i;
	bool again;

	for (i = 0; i < n && value; i++) {
		name[i] = (struct uns_value *)(uintptr_t)state->pair[i].key;
		value[i] = state->pair[i].value;
	}
	names = value ? uns_pickle_tuple(m, name, n, &again) : NULL;
	if (!names)
		return false;
	object->kind = UNS_VALUE_RECORD;
	object->n = (uint32_t)n;
	object->item = value;
	object->names = names;
	uns_pickle_spare(m, state->pair, n * sizeof(*state->pair));
	uns_pickle_spare(m, state, sizeof(*state));
	return true;
}

bool uns_pickle_unrecord(struct uns_pickle *m, struct uns_value *record)
{
	struct uns_value *state = uns_pickle_value(m, UNS_VALUE_DICT);
	size_t i;

	if (!state)
		return false;
	state->pair = uns_pickle_alloc(m, record->n, sizeof(*state->pair));
	if (!state->pair)
		return false;
	for (i = 0; i < record->n; i++)
		state->pair[i] = (struct uns_pair){ record->names->item[i], record->item[i] };
	state->n = record->n;
	record->kind = UNS_VALUE_OBJECT;
	record->n = 0;
	record->object.args = m->unit;
	record->state = state;
	return true;
}
