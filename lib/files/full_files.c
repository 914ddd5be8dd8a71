/* Weights and optimizer of a whole checkpoint as single files. */
#include "files/full_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "model/cover.h"
#include "files/adapter_files.h"
#include "files/masters.h"
#include "files/other_models.h"
#include "files/safetensors_file.h"
#include "wire/value_new.h"

/* -- check -- */

int uns_full_check(const struct uns_catalog *cat, struct uns_err *why)
{
	unsigned last = uns_other_models(cat), k;

	UNS_TRY(uns_cover_weights(cat, why));
	UNS_TRY(uns_other_models_check(cat, why));
	for (k = 0; k <= last; k++)
		UNS_TRY(uns_optimizer_check(cat, uns_optimizer_root_of(cat, k), why));
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
	return cat->summary.family == UNS_FAMILY_DCP && !cat->summary.is_in_parts &&
	       !cat->summary.of_trainer && !cat->summary.resumed_by;
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
	unsigned last = uns_other_models(cat), k;

	for (k = 0; k <= last; k++)
		UNS_TRY(uns_optimizer_check_names(cat, uns_optimizer_root_of(cat, k), why));
	if (!own || uns_optimizer_root(cat))
		return 0;
	return uns_catalog_fail(cat,
				UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_NUMBERED,
					    .scope = UNS_SCOPE_OPTIMIZER, .file = cat->files[own->file].path),
				why);
}

/* -- weights -- */

static bool is_tied(const struct uns_full_input *in, const struct uns_tensor *t)
{
	size_t i;

	for (i = 0; i < in->n_tied; i++)
		if (in->tied[i] == t)
			return true;
	return false;
}

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

/* A Trainer loads only the adapter, into the model that it was given. */
static bool is_adapters_file(const struct uns_catalog *cat)
{
	return cat->summary.adapter == UNS_ADAPTER_ALONE ||
	       (cat->summary.adapter == UNS_ADAPTER_AND_BASE && cat->summary.resumed_by & UNS_BY_TRAINER);
}

static int add_adapters(const struct uns_full_input *in, const struct uns_map *masters, struct uns_vtree *out,
			struct uns_err *err)
{
	struct uns_adapter_files files = { .catalog = in->resume.catalog, .masters = masters, .apart = true };
	size_t i, n_masters = 0;

	for (i = 0; i < files.catalog->n_tensors; i++)
		n_masters += files.catalog->tensors[i].of_adapter &&
			     uns_masters_or(masters, &files.catalog->tensors[i]) != &files.catalog->tensors[i];
	files.origin = weights_origin(&out->arena, n_masters);
	return files.origin ? uns_adapter_files_add(&files, out, err) : uns_oom(err);
}

static const char OF_PUBLISHED[] = "the checkpoint's tensors under their names in memory";

int uns_full_add_safetensors(const struct uns_full_input *in, struct uns_vtree *out,
			     struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t, *source;
	const char *origin;
	size_t i, n = 0, n_masters = 0;

	if (!v)
		return uns_oom(err);
	if (in->resume.plain && !in->resume.weights_made)
		return 0;
	if (in->in_memory.n)
		return uns_part_safetensors_set(cat, in->in_memory.v, in->in_memory.n, "model", in->max_shard_size_bytes,
						OF_PUBLISHED, out, err);
	UNS_TRY(uns_masters_find(cat, &masters, err));
	if (is_adapters_file(cat))
		return add_adapters(in, &masters, out, err);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (!uns_role_is_model(t->role) || is_tied(in, t))
			continue;
		source = uns_masters_or(&masters, t);
		n_masters += source != t;
		v[n++] = uns_named_as_is(source);
	}
	origin = weights_origin(&out->arena, n_masters);
	if (!origin)
		return uns_oom(err);
	return uns_part_safetensors_set(cat, v, n, "model", in->max_shard_size_bytes, origin, out, err);
}

/* Of the first model, or of a further one (files/other_models.h). */
static bool is_of_model(const struct uns_catalog *cat, const struct uns_tensor *t, unsigned k)
{
	return k ? uns_is_of_other_model(cat, t, k) : uns_role_is_model(t->role);
}

static int add_torch_model(const struct uns_full_input *in, unsigned k, const char *stem, struct uns_vtree *out,
			   struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	struct uns_value *root = uns_value_new_dict(&out->arena, cat->n_tensors);
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_torch_input torch = {
		.cat = cat, .root = root, .leaves = &leaves, .stem = stem
	};
	const struct uns_memory_names *renamed = &in->in_memory;
	const struct uns_tensor *t;
	size_t i, n_masters = 0;

	if (!stem)
		return uns_oom(err);
	if (!k)
		UNS_TRY(uns_masters_find(cat, &masters, err));
	for (i = 0; !k && i < renamed->n; i++)
		if (!uns_value_put_str(&out->arena, root, renamed->v[i].name,
				       uns_torch_tensor_add(&leaves, &out->arena, renamed->v[i].tensor)))
			return uns_oom(err);
	if (!k && renamed->n)
		return uns_torch_file_add(&torch, uns_arena_printf(&out->arena, "%s.bin", stem), OF_PUBLISHED, out, err);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (!is_of_model(cat, t, k))
			continue;
		n_masters += uns_masters_or(&masters, t) != t;
		t = uns_masters_or(&masters, t);
		if (!uns_value_put_str(&out->arena, root, t->name,
				       uns_torch_tensor_add(&leaves, &out->arena, t)))
			return uns_oom(err);
	}
	return uns_torch_file_add(&torch, uns_arena_printf(&out->arena, "%s.bin", stem),
				  weights_origin(&out->arena, n_masters), out, err);
}

int uns_full_add_torch_model(const struct uns_full_input *in, const char *stem,
			     struct uns_vtree *out, struct uns_err *err)
{
	return add_torch_model(in, 0, stem, out, err);
}

/* -- optimizer -- */

/* Per-rank files are loaded by their manager, or by hand. Checkpoints of a DeepSpeed engine, or of a script with
 * torch.distributed.checkpoint alone, are loaded by hand. */
static bool is_for_trainer(const struct uns_catalog *cat)
{
	return !uns_full_is_for_script(cat) && !(cat->summary.resumed_by & (UNS_BY_ACCELERATE | UNS_BY_ENGINE)) &&
	       cat->summary.family != UNS_FAMILY_RANKS;
}

static const char *root_to_write(const struct uns_full_input *in)
{
	const struct uns_catalog *cat = in->resume.catalog;
	const char *root = uns_optimizer_root(cat);

	if (root && is_for_trainer(cat) && !uns_resume_has_scheduler(cat) && !in->resume.schedule_made)
		return NULL;
	return root;
}

static const char *origin_of(const struct uns_optimizer_state *state, struct uns_arena *arena)
{
	if (state->n_steps_from_group)
		return uns_arena_printf(
			arena,
			"assembled from the checkpoint's optimizer; `step` of %zu "
			"%s was not saved and is taken from the param group",
			state->n_steps_from_group,
			uns_plural(state->n_steps_from_group, "parameter", "parameters"));
	if (state->n_steps_assumed)
		return uns_arena_printf(arena,
					"assembled from the checkpoint's optimizer; `step` of %zu "
					"%s was not saved and is inferred from global_step",
					state->n_steps_assumed,
					uns_plural(state->n_steps_assumed, "parameter", "parameters"));
	return "assembled from the checkpoint's optimizer";
}

static int add_optimizer(const struct uns_full_input *in, const char *root, enum uns_param_ids ids,
			 const char *name, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_torch_input torch = { .cat = cat, .leaves = &leaves, .stem = "optimizer" };
	struct uns_optimizer_state state;

	UNS_TRY(uns_optimizer_state_build(cat, root, ids,
					  uns_training_step(in->resume.training, cat->summary.step),
					  &out->arena, &leaves, &state, err));
	torch.root = state.root;
	return uns_torch_file_add(&torch, name, origin_of(&state, &out->arena), out, err);
}

int uns_full_add_optimizer(const struct uns_full_input *in, enum uns_param_ids ids,
			   const char *name, struct uns_vtree *out, struct uns_err *err)
{
	const char *root = root_to_write(in);

	if (root)
		return add_optimizer(in, root, ids, name, out, err);
	return uns_optimizer_root(in->resume.catalog)
		       ? uns_vtree_note(out, err,
					"%s is hidden: no scheduler was saved with it, "
					"and a Trainer restores either both or, without a "
					"warning, neither",
					name)
		       : 0;
}

int uns_full_add_others(const struct uns_full_input *in, enum uns_param_ids ids, const char *stem,
			struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->resume.catalog;
	unsigned last = uns_other_models(cat), k;
	const char *root, *name;

	for (k = 1; k <= last; k++) {
		UNS_TRY(add_torch_model(in, k, uns_arena_printf(&out->arena, "%s_%u", stem, k), out, err));
		root = uns_optimizer_root_of(cat, k);
		name = uns_arena_printf(&out->arena, "optimizer_%u.bin", k);
		if (!name)
			return uns_oom(err);
		if (root)
			UNS_TRY(add_optimizer(in, root, ids, name, out, err));
	}
	return 0;
}

/* Does the run without sharding have both an optimizer and a scheduler? Only then are they shown. */
static bool keeps_own_optimizer(const struct uns_full_input *in)
{
	return in->resume.plain && uns_resume_own_optimizer(in->resume.catalog) &&
	       uns_resume_has_scheduler(in->resume.catalog);
}

int uns_full_add_rest(const struct uns_full_input *in, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_resume_input resume = in->resume;

	resume.schedule_for = UNS_SCHEDULE_FOR_TRAINER;
	resume.with_schedule = root_to_write(in) != NULL || keeps_own_optimizer(in);
	UNS_TRY(uns_vtree_note_findings(out, in->notes, in->n_notes, err));
	return uns_resume_files_add(&resume, out, err);
}
