/* The writer of view world-N for DeepSpeed: a tag directory as N data-parallel ranks would have saved it.
 *
 * The plan (zero/plan.h) has laid all parameters out for N ranks. Of that, this file makes the model file or files
 * (weights, shapes in the plan's order, the engine's own values, frozen parameters' slices) and names all files;
 * zero/shard_file.c makes each rank's optimizer file. No tensor is read for it: a file's layout says from which pieces
 * of the checkpoint its bytes will come. */
#include "zero/tag_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "model/cover.h"
#include "zero/autoep_values.h"
#include "zero/engine_state.h"
#include "parallel/experts.h"
#include "zero/names.h"
#include "zero/shard_file.h"
#include "wire/value_new.h"

/* -- names -- */

/* Files of more model-parallel ranks than tensor parallelism or the pipeline has. */
static int check_parallel(const struct uns_catalog *cat, size_t n_mp, struct uns_err *err)
{
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;
	struct uns_zero_name name;

	for (; c < end; c++)
		if (c->shard && uns_zero_name_parse(uns_path_name(c->name), &name) &&
		    name.kind != UNS_ZERO_OPTIM && (size_t)name.mp >= n_mp)
			return uns_catalog_fail(cat,
						UNS_FINDING(.id = UNS_FOUND_MODEL_PARALLEL,
							    .scope = UNS_SCOPE_ALL,
							    .file = cat->files[c->file].path),
						err);
	return 0;
}

int uns_zero_naming_find(const struct uns_catalog *cat, size_t n_mp, struct uns_arena *arena,
			 struct uns_zero_naming *out, struct uns_err *err)
{
	struct uns_zero_name parsed;
	size_t i;

	UNS_TRY(check_parallel(cat, n_mp, err));
	for (i = 0; i < cat->n_companions; i++) {
		const char *path = cat->companions[i].name, *name = uns_path_name(path);

		/* The names before 0.4 are not written. */
		if (!cat->companions[i].shard || !uns_zero_name_parse(name, &parsed) ||
		    parsed.kind != UNS_ZERO_OPTIM || parsed.mp ||
		    !uns_str_ends(name, "_optim_states.pt"))
			continue;
		out->dir = uns_arena_strn(arena, path, (size_t)(name - path));
		out->prefix = uns_str_starts(name, "bf16_") ? "bf16_" : "";
		return out->dir ? 0 : uns_oom(err);
	}
	return uns_catalog_fail(
		cat, UNS_FINDING(.id = UNS_FOUND_NO_ZERO_SHARDS, .scope = UNS_SCOPE_OPTIMIZER),
		err);
}

/* A file's path: prefix is the naming's for the optimizer's shards, "" for model files. */
static char *path_of(const struct uns_zero_plan *plan, const struct uns_zero_naming *names, const char *prefix,
		     enum uns_zero_kind kind, int64_t rank, struct uns_arena *arena)
{
	char *name = uns_zero_name_make(arena, kind, rank, (unsigned)plan->mp);

	return name ? uns_arena_printf(arena, "%s%s%s", names->dir, prefix, name) : NULL;
}

/* -- the model's state dict -- */

int uns_zero_files_check(const struct uns_zero_plan *plan, struct uns_err *err)
{
	const struct uns_catalog *cat = plan->cat;
	size_t i, k;

	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_WEIGHTS)
			return uns_fail_with(err, &cat->findings[i]);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_model(cat->tensors[i].role))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], err));
	for (i = 0; i < plan->n_cuts; i++)
		for (k = 0; k < plan->cut[i].n; k++)
			UNS_TRY(uns_cover_check(cat, plan->cut[i].v[k].fp32, err));
	return 0;
}

/* One model file: of all ranks, or of one. */
struct model {
	const struct uns_zero_plan *plan;
	uint64_t rank;
	struct uns_vtree *out;
	struct uns_engine_state state; /* dict and leaves */
	struct uns_map leaf_of;        /* name -> index */
	struct uns_arena arena;
};

static void model_fini(struct model *m)
{
	uns_map_fini(&m->leaf_of);
	uns_engine_state_fini(&m->state);
	uns_arena_fini(&m->arena);
}

/* What stage 3 puts in a parameter's place. */
static const struct uns_value *empty(struct model *m, const struct uns_tensor *t)
{
	static const uint8_t nothing[1];
	const struct uns_torch_leaf leaf = {
		.out = t->dtype, .shape = { .n = 1 }, .literal = nothing
	};

	return uns_torch_leaf_add(&m->state.leaves, &m->arena, &leaf);
}

/* All that the rank holds of a tensor. */
static const struct uns_value *add_held(struct model *m, const struct uns_tensor *t)
{
	const struct uns_tensor *held = uns_zero_plan_held(m->plan, t, &m->out->arena);
	struct uns_torch_part *part = UNS_NEW(&m->arena, struct uns_torch_part);
	struct uns_torch_leaf leaf = { .out = t->dtype, .part = part, .n_parts = 1 };

	if (!held || !part)
		return NULL;
	if (held == t)
		return uns_torch_tensor_add(&m->state.leaves, &m->arena, t);
	*part = (struct uns_torch_part){ held, 0, uns_shape_elems(&held->shape) };
	leaf.shape = held->shape;
	return uns_torch_leaf_add(&m->state.leaves, &m->arena, &leaf);
}

/* Names that share bytes in the checkpoint share one storage here too. */
static const struct uns_value *shared(struct model *m, const struct uns_tensor *t)
{
	const struct uns_tensor *of =
		t->alias_of == UNS_NONE ? t : &m->plan->cat->tensors[t->alias_of];
	uint32_t index = uns_map_index(&m->leaf_of, of->name);

	if (index != UNS_MAP_NO_INDEX && uns_shape_equal(&of->shape, &t->shape) &&
	    of->dtype == t->dtype)
		return uns_value_new_tensor(&m->arena, index);
	if (!uns_map_put_index(&m->leaf_of, t->name, (uint32_t)m->state.leaves.n))
		return NULL;
	return add_held(m, t);
}

static int put_module(struct model *m, struct uns_err *err)
{
	const struct uns_catalog *cat = m->plan->cat;
	struct uns_value *dict = uns_value_new_dict(&m->arena, cat->n_tensors + cat->n_values);
	const struct uns_tensor *t;
	size_t i;

	if (cat->summary.is_pipeline)
		return uns_value_put_str(&m->arena, m->state.dict, "module", uns_value_new_none(&m->arena)) ? 0
													     : uns_oom(err);
	if (!dict)
		return uns_oom(err);
	dict->cls = "collections.OrderedDict";
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (uns_role_is_model(t->role) && !uns_engine_is_expert(cat, t->name) && !uns_engine_autoep(cat, t->name) &&
		    !uns_value_put_str(&m->arena, dict, t->name,
						       m->plan->sliced && t->role == UNS_ROLE_WEIGHT
							       ? empty(m, t)
							       : shared(m, t)))
			return uns_oom(err);
	}
	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, "model") == 0 &&
		    !uns_value_put_str(&m->arena, dict, cat->values[i].name, cat->values[i].value))
			return uns_oom(err);
	return uns_value_put_str(&m->arena, m->state.dict, "module", dict) ? 0 : uns_oom(err);
}

/* -- frozen parameters -- */

static const struct uns_value *slice(struct model *m, const struct uns_tensor *whole)
{
	const struct uns_tensor *t = uns_zero_plan_held(m->plan, whole, &m->out->arena);
	const struct uns_zero_layout layout = { .sliced = true, .world = m->plan->world };
	struct uns_zero_stretch stretch = { 0 };
	struct uns_torch_part *part = UNS_NEW_N(&m->arena, struct uns_torch_part, 2);
	struct uns_torch_leaf leaf = { .out = whole->dtype, .part = part, .n_parts = 2 };
	uint64_t elems, n;

	if (!part || !t)
		return NULL;
	elems = uns_shape_elems(&t->shape);
	n = uns_zero_slice(elems, m->plan->world);
	leaf.shape = (struct uns_shape){ .n = 1, .dim = { n } };
	if (!uns_zero_stretch_of(&layout, 0, elems, m->rank, &stretch))
		stretch.first = stretch.count = 0;
	part[0] = (struct uns_torch_part){ t, stretch.first, stretch.count };
	part[1] = (struct uns_torch_part){ NULL, 0, n - stretch.count };
	return uns_torch_leaf_add(&m->state.leaves, &m->arena, &leaf);
}

static int put_fragments(struct model *m, const struct uns_value *shapes, struct uns_err *err)
{
	struct uns_value *dict = uns_value_new_dict(&m->arena, shapes->n);
	const struct uns_tensor *t;
	const char *name;
	size_t i;

	if (!dict)
		return uns_oom(err);
	dict->cls = "collections.OrderedDict";
	for (i = 0; i < shapes->n; i++) {
		name = uns_value_str(shapes->pair[i].key);
		t = name ? uns_catalog_find(m->plan->cat, UNS_ROLE_WEIGHT, name) : NULL;
		if (!t)
			return uns_catalog_fail(m->plan->cat,
						UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_MISSING,
							    .scope = UNS_SCOPE_WEIGHTS,
							    .tensor = name ? name : "?"),
						err);
		if (!uns_value_put_str(&m->arena, dict, name,
				       m->plan->sliced ? slice(m, t) : shared(m, t)))
			return uns_oom(err);
	}
	return uns_value_put_str(&m->arena, m->state.dict, "frozen_param_fragments", dict)
		       ? 0
		       : uns_oom(err);
}

/* The shapes of the slices that the rank holds. */
static int put_frozen_shapes(struct model *m, const struct uns_value *shapes, struct uns_err *err)
{
	struct uns_value *dict = uns_value_new_dict(&m->arena, shapes->n);
	const struct uns_zero_cut_up *cut;
	const char *name;
	size_t i;

	if (!dict)
		return uns_oom(err);
	dict->cls = "collections.OrderedDict";
	for (i = 0; i < shapes->n; i++) {
		name = uns_value_str(shapes->pair[i].key); /* checked with its fragment */
		cut = uns_zero_cut_find(m->plan->slices, name);
		if (!uns_value_put_str(&m->arena, dict, name,
				       cut ? uns_value_new_size(&m->arena, cut->slice[m->plan->mp].shape.dim,
								cut->slice[m->plan->mp].shape.n)
					   : shapes->pair[i].value))
			return uns_oom(err);
	}
	return uns_value_put_str(&m->arena, m->state.dict, "frozen_param_shapes", dict) ? 0 : uns_oom(err);
}

/* Tensor parallelism cut all parameters, and not AutoEP some of the experts' alone. */
static bool cuts_all(const struct uns_zero_plan *plan)
{
	return plan->slices->n_ranks > 1 && !plan->cat->summary.is_autoep;
}

static int put_frozen(struct model *m, struct uns_err *err)
{
	const struct uns_value *shapes =
		uns_catalog_value(m->plan->cat, "model_states", "frozen_param_shapes");

	if (shapes && shapes->kind == UNS_VALUE_DICT) {
		UNS_TRY(put_fragments(m, shapes, err));
		return cuts_all(m->plan) ? put_frozen_shapes(m, shapes, err) : 0;
	}
	return uns_value_put_str(&m->arena, m->state.dict, "frozen_param_fragments",
				 uns_value_new_none(&m->arena))
		       ? 0
		       : uns_oom(err);
}

/* -- the rest of the file -- */

static const struct uns_value *cut_shapes(struct uns_arena *arena, const struct uns_zero_cut *cut)
{
	struct uns_value *dict = uns_value_new_dict(arena, cut->n);
	size_t i;

	if (!dict)
		return NULL;
	dict->cls = "collections.OrderedDict";
	for (i = 0; i < cut->n; i++)
		if (!uns_value_put_str(arena, dict, cut->v[i].name,
				       uns_value_new_size(arena, cut->v[i].fp32->shape.dim,
							  cut->v[i].fp32->shape.n)))
			return NULL;
	return dict;
}

static const struct uns_value *shapes_value(const struct uns_zero_plan *plan,
					    struct uns_arena *arena)
{
	struct uns_value *list = uns_value_new_list(arena, plan->n_cuts);
	size_t i;

	for (i = 0; i < plan->n_cuts; i++)
		if (!uns_value_append(list, cut_shapes(arena, &plan->cut[i])))
			return NULL;
	return list;
}

/* At stage 3 only rank 0's file lists them. */
static const struct uns_value *shared_params(const struct model *m, struct uns_arena *arena)
{
	const struct uns_value *v =
		uns_catalog_value(m->plan->cat, "model_states", "shared_params");

	return v && (!m->plan->sliced || m->rank == 0) ? v : uns_value_new_dict(arena, 0);
}

static int put_rest(struct model *m, struct uns_err *err)
{
	struct uns_value *dict = m->state.dict;
	struct uns_arena *arena = &m->arena;

	if (!uns_value_put_str(arena, dict, "optimizer", uns_value_new_none(arena)) ||
	    !uns_value_put_str(arena, dict, "param_shapes", shapes_value(m->plan, arena)) ||
	    !uns_value_put_str(arena, dict, "shared_params", shared_params(m, arena)) ||
	    !uns_value_put_str(arena, dict, "dp_world_size",
			       uns_value_new_int(arena, (int64_t)m->plan->world)))
		return uns_oom(err);
	return 0;
}

static int make_model(struct model *m, struct uns_err *err)
{
	const bool cut = cuts_all(m->plan);
	const bool autoep = m->plan->cat->summary.is_autoep;
	const char *const without[] = { "param_shapes", "shared_params", "dp_world_size",
					autoep ? "ds_autoep_layers" : cut ? "frozen_param_shapes" : NULL,
					autoep ? "universal_checkpoint_info" : NULL, NULL };

	UNS_TRY(uns_engine_model_state(m->plan->cat, 0, without, 10, m->out, &m->state, err));
	if (autoep)
		UNS_TRY(uns_zero_autoep_put_layers(m->plan, m->rank, &m->arena, m->state.dict, err));
	UNS_TRY(put_module(m, err));
	UNS_TRY(put_frozen(m, err));
	return put_rest(m, err);
}

static int layout_model(const struct uns_zero_plan *plan, uint64_t rank, struct uns_vtree *out,
			struct uns_layout *layout, struct uns_err *err)
{
	UNS_CLEANUP(model_fini)
	struct model m = { .plan = plan, .rank = rank, .out = out };
	struct uns_torch_input in = { .cat = plan->cat,
				      .leaves = &m.state.leaves,
				      .stem = "model_states",
				      .classes = uns_engine_classes };

	UNS_TRY(make_model(&m, err));
	in.root = m.state.dict;
	return uns_part_torch_file(&in, &out->arena, layout, err);
}

static int add_model(const struct uns_zero_plan *plan, const struct uns_zero_naming *names,
		     struct uns_vtree *out, struct uns_err *err)
{
	struct uns_vfile file = { .source = UNS_NONE,
				  .origin = "the checkpoint's model file, for another number of "
					    "ranks" };
	const struct uns_value *frozen =
		uns_catalog_value(plan->cat, "model_states", "frozen_param_shapes");
	bool differ = plan->cat->summary.is_autoep || (frozen && frozen->kind == UNS_VALUE_DICT && frozen->n);
	uint64_t r;

	for (r = 0; r < (plan->sliced ? plan->world : 1); r++) {
		file.path = path_of(plan, names, "", UNS_ZERO_MODEL, plan->sliced ? (int64_t)r : -1,
				    &out->arena);
		if (!file.path)
			return uns_oom(err);
		/* Where nothing is sliced, all ranks but the first have the same. */
		if (r < 2 || differ)
			UNS_TRY(layout_model(plan, r, out, &file.layout, err));
		UNS_TRY(uns_vtree_add(out, &file, err));
	}
	return 0;
}

int uns_zero_files_add(const struct uns_zero_plan *plan, const struct uns_zero_naming *names,
		       struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_value *common;
	const char *path;
	uint64_t i, r;

	if (!plan->share)
		UNS_TRY(add_model(plan, names, out, err));
	UNS_TRY(uns_zero_shard_common(plan, out, &common, err));
	for (i = 0; i < plan->world / plan->n_shares; i++) {
		r = plan->first + i * plan->stride;
		path = path_of(plan, names, names->prefix, UNS_ZERO_OPTIM, (int64_t)r, &out->arena);
		if (!path)
			return uns_oom(err);
		UNS_TRY(uns_zero_shard_add(plan, common, r, path, out, err));
	}
	return 0;
}
