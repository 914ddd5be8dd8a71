/* Weights and optimizer of a whole checkpoint as single files. A state of Accelerate's may have several models: the
 * first is the checkpoint's model, and model k > 0 has tensors of role OTHER under the root "model_<k>"; its optimizer
 * is "optimizer_<k>". */
#include "files/full_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "model/cover.h"
#include "files/adapter_files.h"
#include "files/masters.h"
#include "files/safetensors_file.h"
#include "wire/value_new.h"

#define MODEL_ROOT "model_"

/* The number k of the further model that the tensor belongs to; 0 = the first model, or none. */
static unsigned other_model_of(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	unsigned long long k;

	if (!cat->summary.is_in_parts || t->role != UNS_ROLE_OTHER || !t->root ||
	    !uns_str_number(t->root, MODEL_ROOT, "", &k))
		return 0;
	return (unsigned)k;
}

bool uns_full_is_of_model(const struct uns_catalog *cat, const struct uns_tensor *t, unsigned k)
{
	return k ? other_model_of(cat, t) == k : uns_role_is_model(t->role);
}

/* The highest k; 0 = there is one model. */
unsigned uns_full_last_model(const struct uns_catalog *cat)
{
	unsigned last = 0, k;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		k = other_model_of(cat, &cat->tensors[i]);
		last = k > last ? k : last;
	}
	return last;
}

/* The root of model k's optimizer; NULL = the state has none. */
static const char *optimizer_root_of(const struct uns_catalog *cat, unsigned k)
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

/* -- check -- */

int uns_full_check(const struct uns_catalog *cat, struct uns_err *why)
{
	unsigned last = uns_full_last_model(cat), k;
	size_t i;

	UNS_TRY(uns_cover_weights(cat, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (other_model_of(cat, &cat->tensors[i]))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	if (uns_full_is_plain(cat) && uns_resume_own_optimizer(cat)) /* the file is shown unchanged */
		return uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, why);
	for (k = 0; k <= last; k++)
		UNS_TRY(uns_optimizer_check(cat, optimizer_root_of(cat, k), why));
	UNS_TRY(uns_optimizer_check_hyper(cat, why));
	return uns_masters_check(cat, why);
}

static bool is_passed_through(const struct uns_catalog *cat, uint32_t file)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (cat->companions[i].file == file)
			return !cat->companions[i].shard;
	return false;
}

bool uns_full_is_for_script(const struct uns_catalog *cat)
{
	return cat->summary.family == UNS_FAMILY_DCP && !cat->summary.is_in_parts && !cat->summary.of_trainer &&
	       !cat->summary.resumed_by;
}

bool uns_full_is_plain(const struct uns_catalog *cat)
{
	const struct uns_tensor *t;
	uint32_t last = UNS_NONE;
	size_t i, k;

	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (t->role == UNS_ROLE_MASTER)
			return false; /* more exact than the file's values */
		if (t->of || t->own)
			return false; /* made for the view */
		for (k = 0; uns_role_is_model(t->role) && k < t->n_pieces; k++) {
			if (cat->pieces[t->first_piece + k].file == last)
				continue;
			last = cat->pieces[t->first_piece + k].file;
			if (!is_passed_through(cat, last))
				return false;
		}
	}
	return last != UNS_NONE;
}

int uns_full_check_names(const struct uns_catalog *cat, struct uns_err *why)
{
	const struct uns_companion *own = uns_resume_own_optimizer(cat);
	unsigned last = uns_full_last_model(cat), k;

	for (k = 0; k <= last; k++)
		UNS_TRY(uns_optimizer_check_names(cat, optimizer_root_of(cat, k), why));
	if (!own || uns_optimizer_root(cat))
		return 0;
	return UNS_CATALOG_FAIL(cat, why, OPTIMIZER_NUMBERED, .scope = UNS_SCOPE_OPTIMIZER,
				.file = cat->files[own->file].path);
}

/* -- weights -- */

/* A training resumes from the fp32 copy: the values that were rounded to the saved weight. */
static const char *weights_origin(struct uns_arena *arena, size_t n_masters)
{
	if (!n_masters)
		return "assembled from the checkpoint's tensors";
	return uns_arena_printf(arena,
				"assembled from the checkpoint's tensors; %zu of them made from the optimizer's "
				"fp32 copies, which a resumed training begins with",
				n_masters);
}

static int adapters_add(const struct uns_full_input *in, const struct uns_map *masters, struct uns_vtree *out,
			struct uns_err *err)
{
	struct uns_adapter_files files = { .catalog = in->resume.catalog, .masters = masters, .apart = true };
	const struct uns_tensor *t = files.catalog->tensors, *end = t + files.catalog->n_tensors;
	size_t n_masters = 0;

	for (; t < end; t++)
		n_masters += t->of_adapter && uns_masters_or(masters, t) != t;
	files.origin = weights_origin(&out->arena, n_masters);
	return uns_adapter_files_add(&files, out, err);
}

/* As save_pretrained of sentence-transformers writes it, which its trainer loads when it resumes. */
static int modules_add(const struct uns_full_input *in, const struct uns_map *masters, struct uns_vtree *out,
		       struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	const struct uns_sentence_module *m = in->modules->v, *end = m + in->modules->n;
	size_t i, n, n_masters;
	const char *stem;

	UNS_TRY_ALLOC(v, err);
	for (; m < end; m++) {
		for (i = n = n_masters = 0; i < cat->n_tensors; i++) {
			const struct uns_tensor *t = &cat->tensors[i], *source = uns_masters_or(masters, t);

			if (!uns_sentence_module_has(m, t))
				continue;
			n_masters += source != t;
			v[n] = uns_named_as_is(source);
			v[n++].name = t->name + strlen(m->prefix);
		}
		UNS_TRY_ALLOC(stem = uns_path_join(&out->arena, m->path, "model"), err);
		if (n)
			UNS_TRY(uns_part_safetensors_set(cat, v, n, stem,
							 m->is_pretrained ? in->max_shard_size_bytes : UINT64_MAX,
							 weights_origin(&out->arena, n_masters), out, err));
	}
	return 0;
}

static const char OF_PUBLISHED[] = "the checkpoint's tensors under their names in memory";

int uns_full_add_safetensors(const struct uns_full_input *in, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors, *source;
	size_t i, n = 0, n_masters = 0;

	UNS_TRY_ALLOC(v, err);
	if (in->resume.plain && !in->resume.weights_made)
		return 0;
	if (in->in_memory.n)
		return uns_part_safetensors_set(cat, in->in_memory.v, in->in_memory.n, "model",
						in->max_shard_size_bytes, OF_PUBLISHED, out, err);
	UNS_TRY(uns_masters_find(cat, &masters, err));
	/* A Trainer loads only the adapter, into the model that it was given. */
	if (cat->summary.adapter == UNS_ADAPTER_ALONE ||
	    (cat->summary.adapter == UNS_ADAPTER_AND_BASE && cat->summary.resumed_by & UNS_BY_TRAINER))
		return adapters_add(in, &masters, out, err);
	if (in->modules)
		return modules_add(in, &masters, out, err);
	for (; t < end; t++) {
		for (i = 0; i < in->n_tied && in->tied[i] != t; i++)
			;
		if (!uns_role_is_model(t->role) || i < in->n_tied)
			continue;
		source = uns_masters_or(&masters, t);
		n_masters += source != t;
		v[n++] = uns_named_as_is(source);
	}
	return uns_part_safetensors_set(cat, v, n, "model", in->max_shard_size_bytes,
					weights_origin(&out->arena, n_masters), out, err);
}

/* Adds STEM.bin with the tensors of model k. */
static int torch_model_add(const struct uns_full_input *in, unsigned k, const char *stem, struct uns_vtree *out,
			   struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	struct uns_arena *arena = &out->arena;
	struct uns_value *root = uns_value_new_dict(arena, cat->n_tensors);
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_torch_input torch = { .cat = cat, .root = root, .leaves = &leaves, .stem = stem };
	const struct uns_memory_names *renamed = &in->in_memory;
	const char *path = uns_arena_printf(arena, "%s.bin", stem ? stem : "");
	const struct uns_tensor *t;
	size_t i, n_masters = 0;

	UNS_TRY_ALLOC(stem, err);
	if (!k && renamed->n) {
		for (i = 0; i < renamed->n; i++)
			UNS_TRY_ALLOC(uns_value_put_str(arena, root, renamed->v[i].name,
							uns_torch_tensor_add(&leaves, arena, renamed->v[i].tensor)),
				      err);
		return uns_torch_file_add(&torch, path, OF_PUBLISHED, out, err);
	}
	if (!k)
		UNS_TRY(uns_masters_find(cat, &masters, err));
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (k ? other_model_of(cat, t) != k : !uns_role_is_model(t->role))
			continue;
		n_masters += uns_masters_or(&masters, t) != t;
		t = uns_masters_or(&masters, t);
		UNS_TRY_ALLOC(uns_value_put_str(arena, root, t->name, uns_torch_tensor_add(&leaves, arena, t)), err);
	}
	return uns_torch_file_add(&torch, path, weights_origin(arena, n_masters), out, err);
}

int uns_full_add_torch_model(const struct uns_full_input *in, const char *stem, struct uns_vtree *out,
			     struct uns_err *err)
{
	return torch_model_add(in, 0, stem, out, err);
}

/* -- optimizer -- */

/* The root of the optimizer that the view shows; NULL = it shows none. Per-rank files are loaded by their manager, or
 * by hand. Checkpoints of a DeepSpeed engine, or of a script with torch.distributed.checkpoint alone, are loaded by
 * hand. A Trainer restores the optimizer only beside a scheduler. */
static const char *root_to_write(const struct uns_full_input *in)
{
	const struct uns_catalog *cat = in->resume.catalog;
	const bool for_trainer = !uns_full_is_for_script(cat) && cat->summary.family != UNS_FAMILY_RANKS &&
				 !(cat->summary.resumed_by & (UNS_BY_ACCELERATE | UNS_BY_ENGINE));

	return for_trainer && !uns_resume_has_scheduler(cat) && !in->resume.schedule_made ? NULL
											  : uns_optimizer_root(cat);
}

static const char *origin_of(const struct uns_optimizer_state *state, struct uns_arena *arena)
{
	static const char origin[] = "assembled from the checkpoint's optimizer";
	const size_t n = state->n_steps_from_group ? state->n_steps_from_group : state->n_steps_assumed;

	return n ? uns_arena_printf(arena, "%s; `step` of %zu %s was not saved and is %s", origin, n,
				    uns_plural(n, "parameter", "parameters"),
				    state->n_steps_from_group ? "taken from the param group"
							      : "inferred from global_step")
		 : origin;
}

static int optimizer_add(const struct uns_full_input *in, const char *root, enum uns_param_ids ids, const char *name,
			 struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_torch_input torch = { .cat = cat, .leaves = &leaves, .stem = "optimizer" };
	struct uns_optimizer_state state;

	UNS_TRY(uns_optimizer_state_build(cat, root, ids, uns_training_step(in->resume.training, cat->summary.step),
					  &out->arena, &leaves, &state, err));
	torch.root = state.root;
	return uns_torch_file_add(&torch, name, origin_of(&state, &out->arena), out, err);
}

int uns_full_add_optimizer(const struct uns_full_input *in, enum uns_param_ids ids, const char *name,
			   struct uns_vtree *out, struct uns_err *err)
{
	const char *root = root_to_write(in);

	if (in->resume.plain && uns_resume_own_optimizer(in->resume.catalog))
		return 0; /* it is one of the files that uns_full_add_rest adds */
	if (root)
		return optimizer_add(in, root, ids, name, out, err);
	return uns_optimizer_root(in->resume.catalog)
		       ? uns_vtree_note(out, err,
					"%s is hidden: no scheduler was saved with it, and a Trainer restores either "
					"both or, without a warning, neither",
					name)
		       : 0;
}

int uns_full_add_others(const struct uns_full_input *in, enum uns_param_ids ids, const char *stem,
			struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	unsigned last = uns_full_last_model(cat), k;
	const char *root;

	for (k = 1; k <= last; k++) {
		UNS_TRY(torch_model_add(in, k, uns_arena_printf(&out->arena, "%s_%u", stem, k), out, err));
		root = optimizer_root_of(cat, k);
		if (root)
			UNS_TRY(optimizer_add(in, root, ids, uns_arena_printf(&out->arena, "optimizer_%u.bin", k), out,
					      err));
	}
	return 0;
}

int uns_full_add_rest(const struct uns_full_input *in, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_resume_input resume = in->resume;

	resume.schedule_for = UNS_SCHEDULE_FOR_TRAINER;
	/* A run without sharding shows its own optimizer and scheduler if it has both. */
	resume.with_schedule = root_to_write(in) || (resume.plain && uns_resume_own_optimizer(resume.catalog) &&
						     uns_resume_has_scheduler(resume.catalog));
	UNS_TRY(uns_vtree_note_findings(out, in->notes, in->n_notes, err));
	return uns_resume_files_add(&resume, out, err);
}

/* -- the further models of the view weights -- */

static int other_model_add(const struct uns_catalog *cat, unsigned k, const struct uns_component *component,
			   enum uns_dtype dtype, uint64_t max_shard_size_bytes, struct uns_vtree *out,
			   struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	const char *stem = component ? component->stem : uns_arena_printf(&out->arena, MODEL_ROOT "%u/model", k);
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_err why = { 0 };
	enum uns_dtype type;
	size_t n = 0;
	int code;

	UNS_TRY_ALLOC(v && stem, err);
	for (; t < end; t++) {
		if (other_model_of(cat, t) != k)
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
					    "assembled from the checkpoint's tensors", out, err)
		 : 0;
}

int uns_full_add_other_models(const struct uns_catalog *cat, const struct uns_pipeline *pipeline, enum uns_dtype dtype,
			      uint64_t max_shard_size_bytes, struct uns_vtree *out, struct uns_err *err)
{
	unsigned last = uns_full_last_model(cat), k;

	for (k = 1; k <= last; k++)
		UNS_TRY(other_model_add(cat, k, uns_pipeline_of_model(pipeline, (int)k), dtype, max_shard_size_bytes,
					out, err));
	return 0;
}
