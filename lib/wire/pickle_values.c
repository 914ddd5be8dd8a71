/* The values that the pickle machine makes: memory for them, within the limit, and the equal tuples that are one. */
#include <string.h>

#include "wire/pickle_machine.h"

enum { MAX_RECENT_TUPLE = 8, WORD = sizeof(void *) };

bool uns_pickle_within_limit(struct uns_pickle *m, size_t n, size_t size)
{
	size_t used = m->arena->used_bytes - m->used_before + m->stack.cap * sizeof(*m->stack.v) + m->memo.bytes +
		      m->cap_marks * sizeof(*m->mark),
	       need;

	m->over_limit = __builtin_mul_overflow(n, size, &need) || used > m->limit_bytes || need > m->limit_bytes - used;
	return !m->over_limit;
}

static size_t words(size_t bytes)
{
	return (bytes + WORD - 1) / WORD;
}

void uns_pickle_spare(struct uns_pickle *m, void *p, size_t bytes)
{
	void **list = &m->spare[words(bytes)];

	memcpy(p, list, sizeof(*list));
	*list = p;
}

void *uns_pickle_alloc(struct uns_pickle *m, size_t n, size_t size)
{
	void *p, **list;

	if (!uns_pickle_within_limit(m, n, size))
		return NULL;
	list = words(n * size) <= UNS_PICKLE_MAX_SPARE ? &m->spare[words(n * size)] : NULL;
	if (!list || !*list)
		return uns_arena_alloc(m->arena, n, size);
	p = *list;
	memcpy(list, p, sizeof(*list));
	return memset(p, 0, words(n * size) * WORD);
}

struct uns_value *uns_pickle_value(struct uns_pickle *m, enum uns_value_kind kind)
{
	struct uns_value *v = uns_pickle_alloc(m, 1, sizeof(*v));

	if (v)
		v->kind = kind;
	return v;
}

struct uns_value *uns_pickle_bytes(struct uns_pickle *m, enum uns_value_kind kind, const void *p, size_t n)
{
	struct uns_value *v = uns_pickle_value(m, kind);
	char *copy = v ? uns_pickle_alloc(m, n + 1, 1) : NULL;

	if (!copy)
		return NULL;
	if (n)
		memcpy(copy, p, n);
	v->bytes = copy;
	v->n = (uint32_t)n;
	return v;
}

struct uns_value *uns_pickle_dotted(struct uns_pickle *m, const char *outer, size_t outer_len, const char *inner,
				    size_t inner_len)
{
	struct uns_value *v = uns_pickle_value(m, UNS_VALUE_GLOBAL);
	char *cls = v ? uns_pickle_alloc(m, outer_len + inner_len + 2, 1) : NULL;

	if (!cls)
		return NULL;
	memcpy(cls, outer, outer_len);
	cls[outer_len] = '.';
	memcpy(cls + outer_len + 1, inner, inner_len);
	v->cls = cls;
	return v;
}

static struct uns_value **tuple_slot(const struct uns_pickle *m, struct uns_value **items, size_t n)
{
	uint64_t h = n;
	size_t i;

	for (i = 0; i < n; i++)
		h = (h ^ (uintptr_t)items[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return &m->recent.tuples[uns_pickle_slot(m, h ^ h >> 32)];
}

static bool tuple_is(const struct uns_value *v, struct uns_value **items, size_t n)
{
	size_t i = 0;

	while (v && v->n == n && i < n && v->item[i] == items[i])
		i++;
	return i == n;
}

struct uns_value *uns_pickle_tuple(struct uns_pickle *m, struct uns_value **items, size_t n, bool *again)
{
	struct uns_value *v, **recent = n && n <= MAX_RECENT_TUPLE ? tuple_slot(m, items, n) : NULL;

	*again = recent && tuple_is(*recent, items, n);
	if (*again)
		return *recent;
	v = uns_pickle_value(m, UNS_VALUE_TUPLE);
	if (v && n)
		v->item = uns_pickle_alloc(m, n, sizeof(*v->item));
	if (!v || (n && !v->item))
		return NULL;
	v->n = (uint32_t)n;
	if (n) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): n items lie there */
		memcpy(v->item, items, n * sizeof(*items));
	if (recent)
		*recent = v;
	return v;
}
