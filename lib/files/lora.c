/* Reads PEFT's LoRA from names. Source: peft 0.21.2, tuners/lora/layer.py and config.py. X is a module of the base
 * model:
 *
 *   X.lora_A, X.lora_embedding_A       [r, ...]
 *   X.lora_B, X.lora_embedding_B       X.lora_B.bias: lora_bias=True
 *   X.lora_magnitude_vector            use_dora=True
 *   X.modules_to_save.NAME.*           modules_to_save, in memory; in PEFT's files X.*
 *   X.base_layer.bias, X.bias          bias="all" or "lora_only"
 *   X.base_layer.weight                an adapted embedding's own, saved with it
 *
 * An adapted parameter (target_parameters: experts) looks as if its module were adapted; its rank is not in its shape.
 */
#include "files/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/adapter.h"

static const char PREFIX[] = "base_model.model.";
static const char SAVED[] = ".modules_to_save.";
static const char BASE_LAYER[] = ".base_layer.";

struct reading {
	const struct uns_catalog *cat;
	const struct uns_one_adapter *adapter;
	struct uns_arena *arena;
	struct uns_lora *out;
	struct uns_map names; /* of the adapter's tensors in PEFT's files, without PREFIX -> tensor */
	bool biases, lone_biases; /* trained ones: of adapted modules; of others */
};

static void reading_fini(struct reading *r)
{
	uns_map_fini(&r->names);
}

static const char *before(const struct reading *r, const char *name, const char *at)
{
	return uns_arena_strn(r->arena, name, (size_t)(at - name));
}

static int names_find(struct reading *r, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	size_t n, i;

	UNS_TRY(uns_adapter_tensors(r->cat, r->adapter, r->arena, &v, &n, err));
	for (i = 0; i < n; i++)
		if (!uns_str_starts(v[i].name, PREFIX))
			r->out->unlike = v[i].tensor->name;
		else
			UNS_TRY_ALLOC(uns_map_put(&r->names, v[i].name + strlen(PREFIX), (void *)v[i].tensor, NULL),
				      err);
	return 0;
}

/* Is the rank a dimension of this module's tensors? */
static bool is_plain_module(const char *module)
{
	return !uns_str_ends(module, ".base_layer") && strcmp(module, "experts") != 0 &&
	       !uns_str_ends(module, ".experts");
}

static int part_read(struct reading *r, const char *name, const char *part, const struct uns_tensor *t,
		     struct uns_err *err)
{
	static const char *const first[] = { "lora_A.weight", "lora_embedding_A" };
	static const char *const other[] = { "lora_B.weight", "lora_embedding_B", "lora_magnitude_vector" };
	const char *module;
	size_t i;

	UNS_TRY_ALLOC(module = before(r, name, part - 1), err);
	if (strcmp(part, "lora_B.bias") == 0) {
		r->out->lora_bias = true;
		return 0;
	}
	for (i = 0; i < sizeof(other) / sizeof(*other); i++)
		if (strcmp(part, other[i]) == 0) {
			r->out->dora |= uns_str_starts(part, "lora_magnitude_");
			return 0;
		}
	for (i = 0; i < sizeof(first) / sizeof(*first); i++)
		if (strcmp(part, first[i]) == 0 && is_plain_module(module) && t->shape.n >= 2 &&
		    t->shape.dim[0] < UNS_MAP_NO_INDEX) {
			UNS_TRY_ALLOC(uns_map_put_index(&r->out->modules, module, (uint32_t)t->shape.dim[0]), err);
			return 0;
		}
	r->out->unlike = t->name;
	return 0;
}

static int saved_read(struct reading *r, const char *name, const struct uns_tensor *t, struct uns_err *err)
{
	const char *at = strstr(t->name, SAVED), *end = strrchr(name, '.'), *module, *weight;

	if (strstr(name, BASE_LAYER)) {
		r->biases |= uns_str_ends(name, ".bias");
		return 0;
	}
	if (at) {
		UNS_TRY_ALLOC(module = before(r, t->name, at), err);
		UNS_TRY_ALLOC(module = uns_adapter_base_name(r->arena, PREFIX, module), err);
	} else {
		UNS_TRY_ALLOC(module = before(r, name, end ? end : name), err);
		UNS_TRY_ALLOC(weight = uns_arena_printf(r->arena, "%s.weight", module), err);
		if (uns_str_ends(name, ".bias") && !uns_map_get(&r->names, weight)) {
			r->lone_biases = true;
			return 0;
		}
	}
	UNS_TRY_ALLOC(uns_map_put(&r->out->saved, module, (void *)module, NULL), err);
	return 0;
}

static int ascending(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Sets out->r: the rank of most modules; of two that are as frequent, the lower. */
static int most_frequent_find(struct uns_lora *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint32_t *rank = calloc(out->modules.n + 1, sizeof(*rank));
	size_t at = 0, n = 0, i, first = 0, most = 0;
	const char *module;
	void *value;

	UNS_TRY_ALLOC(rank, err);
	while (uns_map_next(&out->modules, &at, &module, &value))
		rank[n++] = uns_map_index(&out->modules, module);
	qsort(rank, n, sizeof(*rank), ascending);
	for (i = 0; i < n; i++) {
		first = rank[i] == rank[first] ? first : i;
		if (i - first + 1 > most) {
			most = i - first + 1;
			out->r = rank[i];
		}
	}
	return 0;
}

int uns_lora_read(const struct uns_catalog *cat, const struct uns_one_adapter *adapter, struct uns_arena *arena,
		  struct uns_lora *out, struct uns_err *err)
{
	UNS_CLEANUP(reading_fini) struct reading r = { .cat = cat, .adapter = adapter, .arena = arena, .out = out };
	const char *name, *part;
	size_t at = 0;
	void *t;

	UNS_TRY(names_find(&r, err));
	while (uns_map_next(&r.names, &at, &name, &t)) {
		part = uns_adapter_part(name);
		if (part && part > name)
			UNS_TRY(part_read(&r, name, part, t, err));
		else
			UNS_TRY(saved_read(&r, name, t, err));
	}
	UNS_TRY(most_frequent_find(out, err));
	out->bias = r.lone_biases ? "all" : r.biases ? "lora_only" : "none";
	if (!out->modules.n && !out->unlike)
		out->unlike = cat->tensors[0].name;
	return 0;
}

void uns_lora_fini(struct uns_lora *lora)
{
	uns_map_fini(&lora->modules);
	uns_map_fini(&lora->saved);
}
