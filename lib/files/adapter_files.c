/* Collects the tensors of each adapter. Knows which adapter is the one to load, not how its tensors are named. */
#include "files/adapter_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "files/adapter.h"
#include "files/masters.h"
#include "files/safetensors_file.h"

/* An adapter by its name; "" if the names of the checkpoint contain none. */
struct adapter {
	const char *name;
	size_t len;
	bool trained;
};

struct adapters {
	struct adapter *v;
	size_t n, cap;
};

static void adapters_fini(struct adapters *a)
{
	free(a->v);
}

static bool is_called(const struct adapter *a, const char *name, size_t len)
{
	return a->len == len && memcmp(a->name, name, len) == 0;
}

/* Lists the adapters by the names of their tensors; one without a name if no tensor's name contains one. */
static int adapters_list(const struct uns_catalog *cat, struct adapters *out, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct adapter a;
	size_t i;

	for (; t < end; t++) {
		a = (struct adapter){ .trained = t->group >= 0 };
		a.name = t->of_adapter ? uns_adapter_of(t->name, &a.len) : NULL;
		if (!a.name || memchr(a.name, '/', a.len))
			continue; /* a tensor of all adapters, or of none */
		for (i = 0; i < out->n && !is_called(&out->v[i], a.name, a.len); i++)
			;
		if (i < out->n) {
			out->v[i].trained |= a.trained;
			continue;
		}
		UNS_TRY_ALLOC(UNS_HEAP_ROOM(out->v, out->n, out->cap), err);
		out->v[out->n++] = a;
	}
	if (out->n)
		return 0;
	UNS_TRY_ALLOC(UNS_HEAP_ROOM(out->v, out->n, out->cap), err);
	out->v[out->n++] = (struct adapter){ .name = "" };
	return 0;
}

static int adapter_add(const struct uns_adapter_files *in, const struct adapter *a, bool top, struct uns_vtree *out,
		       struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	const char *stem =
		top ? "adapter_model" : uns_arena_printf(&out->arena, "%.*s/adapter_model", (int)a->len, a->name);
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_tensor *source;
	const char *name;
	size_t n = 0, len;

	UNS_TRY_ALLOC(v && stem, err);
	for (; t < end; t++) {
		name = t->of_adapter ? uns_adapter_of(t->name, &len) : NULL;
		if (!t->of_adapter || (name && !is_called(a, name, len)))
			continue;
		source = uns_masters_or(in->masters, t);
		v[n] = (struct uns_named_tensor){ uns_adapter_name(&out->arena, t->name), source, source->dtype, NULL };
		UNS_TRY_ALLOC(v[n++].name, err);
	}
	return uns_part_safetensors_set(cat, v, n, stem, UINT64_MAX, in->origin, out,
					err); /* one file: PEFT reads no index */
}

int uns_adapter_files_add(const struct uns_adapter_files *in, struct uns_vtree *out, struct uns_err *err)
{
	static const char usual[] = "default";
	UNS_CLEANUP(adapters_fini) struct adapters all = { 0 };
	size_t i, chosen = 0;
	int rank, highest = -1;

	UNS_TRY(adapters_list(in->catalog, &all, err));
	for (i = 0; i < all.n; i++) { /* the trained adapter, else the one with PEFT's default name, else the first */
		rank = 2 * all.v[i].trained + is_called(&all.v[i], usual, strlen(usual));
		if (rank > highest) {
			highest = rank;
			chosen = i;
		}
	}
	for (i = 0; i < all.n; i++)
		UNS_TRY(adapter_add(in, &all.v[i], in->apart ? all.n == 1 : i == chosen, out, err));
	return 0;
}

int uns_adapter_note_config(const struct uns_companion *borrowed, size_t n, struct uns_vtree *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strcmp(borrowed[i].name, "adapter_config.json") == 0)
			return 0;
	return uns_vtree_note(out, err,
			      "these weights are a PEFT adapter, and its adapter_config.json was "
			      "not found, which PeftModel.from_pretrained needs: put it into the "
			      "run directory, or mount with -o model=DIR where DIR holds it");
}
