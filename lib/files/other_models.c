/* The second and further models of one state. */
#include "files/other_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/optimizer_state.h"
#include "files/safetensors_file.h"
#include "model/cover.h"

#define MODEL_ROOT "model_"

/* The number k of the model that the tensor belongs to; 0 = the first model, or none. */
static unsigned model_of(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	unsigned long long k;

	if (!cat->summary.is_in_parts || t->role != UNS_ROLE_OTHER || !t->root ||
	    !uns_str_number(t->root, MODEL_ROOT, "", &k))
		return 0;
	return (unsigned)k;
}

unsigned uns_other_models(const struct uns_catalog *cat)
{
	unsigned last = 0, k;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		k = model_of(cat, &cat->tensors[i]);
		if (k > last)
			last = k;
	}
	return last;
}

bool uns_is_of_other_model(const struct uns_catalog *cat, const struct uns_tensor *t, unsigned k)
{
	return model_of(cat, t) == k;
}

const char *uns_optimizer_root_of(const struct uns_catalog *cat, unsigned k)
{
	char root[32];
	size_t i;

	if (!k)
		return uns_optimizer_root(cat);
	snprintf(root, sizeof(root), "optimizer_%u", k);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role) && strcmp(cat->tensors[i].root, root) == 0)
			return cat->tensors[i].root;
	return NULL;
}

int uns_other_models_check(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (model_of(cat, &cat->tensors[i]))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

static int add_model(const struct uns_catalog *cat, unsigned k, enum uns_dtype dtype, uint64_t max_shard_size_bytes,
		     struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	const char *stem = uns_arena_printf(&out->arena, MODEL_ROOT "%u/model", k);
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_err why = { 0 };
	enum uns_dtype type;
	size_t n = 0;
	int code;

	if (!v || !stem)
		return uns_oom(err);
	for (; t < end; t++) {
		if (model_of(cat, t) != k)
			continue;
		code = uns_cover_check(cat, t, &why);
		if (code < 0 && !uns_code_is_finding(code))
			return uns_fail_copy(err, &why);
		if (code < 0)
			return uns_vtree_note(out, err, MODEL_ROOT "%u is not shown: %s", k, why.text);
		type = dtype != UNS_DTYPE_NONE && uns_dtype_info(t->dtype)->is_float ? dtype : t->dtype;
		v[n++] = (struct uns_named_tensor){ t->name, t, type, NULL };
	}
	return n ? uns_part_safetensors_set(cat, v, n, stem, max_shard_size_bytes,
					    "assembled from the checkpoint's tensors", out, err) :
		   0;
}

int uns_other_models_add(const struct uns_catalog *cat, enum uns_dtype dtype, uint64_t max_shard_size_bytes,
			 struct uns_vtree *out, struct uns_err *err)
{
	unsigned last = uns_other_models(cat), k;

	for (k = 1; k <= last; k++)
		UNS_TRY(add_model(cat, k, dtype, max_shard_size_bytes, out, err));
	return 0;
}
