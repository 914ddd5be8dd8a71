/* Which adapters a checkpoint has, and which of them is the one to load. */
#include "files/adapter_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "files/adapter.h"

static bool is_called(const struct uns_one_adapter *a, const char *name, size_t len)
{
	return a->len == len && memcmp(a->name, name, len) == 0;
}

static bool has(const struct uns_one_adapter *adapter, const struct uns_tensor *t)
{
	size_t len;
	const char *name = t->of_adapter ? uns_adapter_of(t->name, &len) : NULL;

	return t->of_adapter && (!name || is_called(adapter, name, len));
}

int uns_adapter_tensors(const struct uns_catalog *cat, const struct uns_one_adapter *adapter, struct uns_arena *arena,
			struct uns_named_tensor **out, size_t *n, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	*n = 0;
	UNS_TRY_ALLOC(*out = calloc((adapter->other ? adapter->other->n : cat->n_tensors) + 1, sizeof(**out)), err);
	if (adapter->other) {
		memcpy(*out, adapter->other->v, adapter->other->n * sizeof(**out));
		*n = adapter->other->n;
		return 0;
	}
	for (; t < end; t++) {
		if (!has(adapter, t))
			continue;
		(*out)[*n] = (struct uns_named_tensor){ uns_adapter_name(arena, t->name), t, t->dtype, NULL };
		UNS_TRY_ALLOC((*out)[(*n)++].name, err);
	}
	return 0;
}

static int add(struct uns_adapter_list *out, struct uns_one_adapter a, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < out->n && !is_called(&out->v[i], a.name, a.len); i++)
		;
	if (i < out->n) {
		out->v[i].trained |= a.trained;
		return 0;
	}
	UNS_TRY_ALLOC(UNS_HEAP_ROOM(out->v, out->n, out->cap), err);
	out->v[out->n++] = a;
	return 0;
}

static const char usual[] = "default";

const struct uns_one_adapter *uns_adapter_named(const struct uns_adapter_list *list, const char *name)
{
	const struct uns_one_adapter *a = list->v, *end = a + list->n;

	while (a < end && !is_called(a, name, strlen(name)) && (a->len || strcmp(name, usual) != 0))
		a++;
	return a < end ? a : NULL;
}

static void choose(struct uns_adapter_list *list)
{
	int rank, highest = -1;
	size_t i;

	for (i = 0; i < list->n; i++) {
		rank = 2 * list->v[i].trained + is_called(&list->v[i], usual, strlen(usual));
		if (rank > highest) {
			highest = rank;
			list->chosen = i;
		}
	}
}

int uns_adapter_list(const struct uns_catalog *cat, const struct uns_other_lora *other, struct uns_adapter_list *out,
		     struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_one_adapter a;

	for (; t < end; t++) {
		a = (struct uns_one_adapter){ .trained = t->group >= 0 };
		a.name = t->of_adapter ? uns_adapter_of(t->name, &a.len) : NULL;
		if (!a.name || memchr(a.name, '/', a.len))
			continue; /* a tensor of all adapters, or of none */
		UNS_TRY(add(out, a, err));
	}
	if (!out->n)
		UNS_TRY(add(out, (struct uns_one_adapter){ .name = "", .other = other }, err));
	choose(out);
	return 0;
}

void uns_adapter_list_fini(struct uns_adapter_list *list)
{
	free(list->v);
}
