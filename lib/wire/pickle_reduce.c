/* A few calls in pickles make plain data: containers and bytes that older protocols have no opcode for. unshard makes
 * that data of them; every other call stays a tagged OBJECT. Nothing is called. */
#include "wire/pickle_machine.h"

#include <string.h>

/* The tag of a call whose callable is not a plain name: for example the result of another call. */
#define COMPUTED "(computed)"

enum { MAX_NAME = 256 };

static bool is_seq(const struct uns_value *v)
{
	return v && (v->kind == UNS_VALUE_LIST || v->kind == UNS_VALUE_TUPLE || v->kind == UNS_VALUE_SET);
}

struct uns_value *uns_pickle_object(struct uns_pickle *m, const struct uns_value *callable,
				    const struct uns_value *args)
{
	struct uns_value *v = uns_pickle_value(m, UNS_VALUE_OBJECT);

	if (!v)
		return NULL;
	v->cls = callable->kind == UNS_VALUE_GLOBAL ? callable->cls : COMPUTED;
	v->object.args = args;
	return v;
}

static struct uns_value *empty_dict(struct uns_pickle *m, const struct uns_value *callable)
{
	struct uns_value *v = uns_pickle_value(m, UNS_VALUE_DICT);

	if (v)
		v->cls = callable->cls;
	return v;
}

/* OrderedDict([(key, value), ...]). Room is taken before the pairs are looked at, so that a list
 * which many calls share cannot cost more time than the limit on memory allows. */
static struct uns_value *dict_of_pairs(struct uns_pickle *m, const struct uns_value *callable,
				       const struct uns_value *args)
{
	const struct uns_value *pairs = args->item[0], *pair;
	struct uns_value *v = empty_dict(m, callable);
	size_t i, n = pairs->n;

	if (!v)
		return NULL;
	v->pair = uns_pickle_alloc(m, n, sizeof(*v->pair));
	if (!v->pair)
		return NULL;
	for (i = 0; i < n; i++) {
		pair = pairs->item[i];
		if (!is_seq(pair) || pair->n != 2)
			return uns_pickle_object(m, callable, args);
		v->pair[i] = (struct uns_pair){ pair->item[0], pair->item[1] };
	}
	v->n = (uint32_t)n;
	return v;
}

static struct uns_value *set_of(struct uns_pickle *m, const struct uns_value *args)
{
	const struct uns_value *items = uns_value_at(args, 0);
	struct uns_value *v = uns_pickle_value(m, UNS_VALUE_SET);

	if (v && items) { /* shared: the set's room is exact, so it never writes there */
		v->item = items->item;
		v->n = items->n;
	}
	return v;
}

/* Code points below 256 as bytes; false when there are others. */
static bool latin1_of(const struct uns_value *text, uint8_t *out, size_t *n)
{
	const uint8_t *p = (const uint8_t *)text->bytes, *end = p + text->n;

	for (*n = 0; p < end; ++*n) {
		if (*p >= 0x80 && *p > 0xc3)
			return false;
		out[*n] = *p < 0x80 ? *p : (uint8_t)((p[0] & 3) << 6 | (p[1] & 0x3f));
		p += *p < 0x80 ? 1 : 2;
	}
	return true;
}

static bool is_text(const struct uns_value *v, const char *text)
{
	size_t len = strlen(text);

	return v->kind == UNS_VALUE_STR && v->n == len && memcmp(v->bytes, text, len) == 0;
}

/* _codecs.encode(text, 'latin1'): how protocol 2 spells bytes. */
static struct uns_value *encoded(struct uns_pickle *m, const struct uns_value *callable, const struct uns_value *args)
{
	const struct uns_value *text = uns_value_at(args, 0);
	struct uns_value *v = uns_pickle_bytes(m, UNS_VALUE_BYTES, text->bytes, text->n);
	uint8_t *out;
	size_t n;

	if (!v)
		return NULL;
	out = (uint8_t *)(uintptr_t)v->bytes;
	if (!latin1_of(text, out, &n))
		return uns_pickle_object(m, callable, args);
	out[n] = 0;
	v->n = (uint32_t)n;
	return v;
}

static bool is_latin1_call(const struct uns_value *callable, const struct uns_value *args)
{
	return uns_value_is(callable, "_codecs.encode") && args->n == 2 && args->item[0]->kind == UNS_VALUE_STR &&
	       (is_text(args->item[1], "latin1") || is_text(args->item[1], "latin-1"));
}

static const char *builtin(const struct uns_value *callable)
{
	if (strncmp(callable->cls, "__builtin__.", 12) == 0)
		return callable->cls + 12;
	return strncmp(callable->cls, "builtins.", 9) == 0 ? callable->cls + 9 : "";
}

static bool is_set_call(const struct uns_value *callable, const struct uns_value *args)
{
	const char *name = builtin(callable);

	return (strcmp(name, "set") == 0 || strcmp(name, "frozenset") == 0) &&
	       (args->n == 0 || (args->n == 1 && is_seq(args->item[0])));
}

/* bytes() and bytearray(), bytearray(b'..'). */
static bool is_bytes_call(const struct uns_value *callable, const struct uns_value *args)
{
	const char *name = builtin(callable);

	return (strcmp(name, "bytes") == 0 || strcmp(name, "bytearray") == 0) &&
	       (args->n == 0 || (args->n == 1 && args->item[0]->kind == UNS_VALUE_BYTES));
}

/* defaultdict(factory) is a dict as far as data goes; its items follow by SETITEMS. */
static bool is_empty_dict_call(const struct uns_value *callable, const struct uns_value *args)
{
	if (uns_value_is(callable, "collections.OrderedDict"))
		return args->n == 0;
	return uns_value_is(callable, "collections.defaultdict") && args->n <= 1;
}

static bool is_pairs_call(const struct uns_value *callable, const struct uns_value *args)
{
	return uns_value_is(callable, "collections.OrderedDict") && args->n == 1 && is_seq(args->item[0]);
}

/* getattr(Class, 'Inner'): how protocol 2 names a nested class. */
static bool is_nested_name(const struct uns_value *callable, const struct uns_value *args)
{
	return strcmp(builtin(callable), "getattr") == 0 && args->n == 2 && args->item[0]->kind == UNS_VALUE_GLOBAL &&
	       args->item[1]->kind == UNS_VALUE_STR && args->item[1]->n <= MAX_NAME && uns_value_str(args->item[1]);
}

#define ZERO_STAGE "deepspeed.runtime.zero.config.ZeroStageEnum"
#define INTERVAL   "transformers.trainer_utils.IntervalStrategy"
#define SAVE       "transformers.trainer_utils.SaveStrategy"

/* Members that early versions of Python 3.11 (enum.py of 3.11.2, not of 3.11.7) pickle by name, getattr(Class,
 * 'MEMBER'), and all others as Class(VALUE). Sources of the values: deepspeed 0.19.8, runtime/zero/config.py;
 * transformers 5.23, trainer_utils.py. */
static const struct member {
	const char *cls, *name, *text; /* text: the value; NULL = it is the number */
	int64_t number;
} members[] = {
	{ ZERO_STAGE, "disabled", NULL, 0 },  { ZERO_STAGE, "optimizer_states", NULL, 1 },
	{ ZERO_STAGE, "gradients", NULL, 2 }, { ZERO_STAGE, "weights", NULL, 3 },
	{ INTERVAL, "NO", "no", 0 },          { INTERVAL, "STEPS", "steps", 0 },
	{ INTERVAL, "EPOCH", "epoch", 0 },    { SAVE, "NO", "no", 0 },
	{ SAVE, "STEPS", "steps", 0 },        { SAVE, "EPOCH", "epoch", 0 },
	{ SAVE, "BEST", "best", 0 },
};

/* getattr's arguments. NULL = it is none of these members. */
static const struct member *member_find(const struct uns_value *args)
{
	size_t i;

	for (i = 0; i < sizeof(members) / sizeof(*members); i++)
		if (strcmp(members[i].cls, args->item[0]->cls) == 0 &&
		    strcmp(members[i].name, uns_value_str(args->item[1])) == 0)
			return &members[i];
	return NULL;
}

static struct uns_value *member_called(struct uns_pickle *m, const struct uns_value *cls, const struct member *member)
{
	struct uns_value *value, *args;
	bool again;

	value = member->text ? uns_pickle_bytes(m, UNS_VALUE_STR, member->text, strlen(member->text))
			     : uns_pickle_value(m, UNS_VALUE_INT);
	if (!value)
		return NULL;
	if (!member->text)
		value->i = member->number;
	args = uns_pickle_tuple(m, &value, 1, &again);
	return args ? uns_pickle_object(m, cls, args) : NULL;
}

/* A nested class, or the member of an enum. */
static struct uns_value *attribute(struct uns_pickle *m, const struct uns_value *args)
{
	const struct uns_value *cls = args->item[0], *name = args->item[1];
	const struct member *member = member_find(args);

	return member ? member_called(m, cls, member)
		      : uns_pickle_dotted(m, cls->cls, strlen(cls->cls), name->bytes, name->n);
}

static bool is_size_call(const struct uns_value *callable, const struct uns_value *args)
{
	return args->n == 1 && args->item[0]->kind == UNS_VALUE_TUPLE && uns_value_is(callable, "torch.Size");
}

/* A tuple of numbers by another name. Like a tuple it cannot change, and equal ones are one value. */
static struct uns_value *size_of(struct uns_pickle *m, const struct uns_value *callable, const struct uns_value *args)
{
	struct uns_value **recent = &m->recent.sizes[uns_pickle_slot(m, (uintptr_t)args)], *v = *recent;

	if (v && v->object.args == args)
		return v;
	v = uns_pickle_object(m, callable, args);
	if (v)
		v->constant = true;
	*recent = v;
	return v;
}

struct uns_value *uns_pickle_reduce(struct uns_pickle *m, const struct uns_value *callable,
				    const struct uns_value *args)
{
	const struct uns_value *first = uns_value_at(args, 0);

	if (callable->kind != UNS_VALUE_GLOBAL)
		return uns_pickle_object(m, callable, args);
	if (is_size_call(callable, args)) /* first, because a large checkpoint has millions */
		return size_of(m, callable, args);
	if (is_empty_dict_call(callable, args))
		return empty_dict(m, callable);
	if (is_pairs_call(callable, args))
		return dict_of_pairs(m, callable, args);
	if (is_set_call(callable, args))
		return set_of(m, args);
	if (is_latin1_call(callable, args))
		return encoded(m, callable, args);
	if (is_bytes_call(callable, args))
		return uns_pickle_bytes(m, UNS_VALUE_BYTES, first ? first->bytes : "", first ? first->n : 0);
	if (is_nested_name(callable, args))
		return attribute(m, args);
	return uns_pickle_object(m, callable, args);
}
