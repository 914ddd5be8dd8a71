/* The writer of view world-N for DeepSpeed: a tag directory as N data-parallel ranks would have saved it.
 *
 * The plan (zero/write/plan.h) has laid all parameters out for N ranks. Of that, this file makes the model file or
 * files (weights, shapes in the plan's order, the engine's own values, frozen parameters' slices) and names all files;
 * zero/write/shard_file.c makes each rank's optimizer file. No tensor is read for it: a file's layout lists from which
 * pieces of the checkpoint its bytes will come. */
#include "zero/write/tag_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "model/cover.h"
#include "zero/write/autoep_values.h"
#include "zero/engine_state.h"
#include "parallel/experts.h"
#include "zero/names.h"
#include "zero/write/shard_file.h"
#include "wire/value_new.h"

/* -- names -- */

int uns_zero_naming_find(const struct uns_catalog *cat, size_t n_mp, struct uns_arena *arena,
			 struct uns_zero_naming *out, struct uns_err *err)
{
	const struct uns_companion *c, *end = cat->companions + cat->n_companions;
	struct uns_zero_name parsed;

	/* Files of more model-parallel ranks than tensor parallelism or the pipeline has. */
	for (c = cat->companions; c < end; c++)
		if (c->shard && uns_zero_name_parse(uns_path_name(c->name), &parsed) && parsed.kind != UNS_ZERO_OPTIM &&
		    (size_t)parsed.mp >= n_mp)
			return UNS_CATALOG_FAIL(cat, err, MODEL_PARALLEL, .scope = UNS_SCOPE_ALL,
						.file = cat->files[c->file].path);
	for (c = cat->companions; c < end; c++) {
		const char *name = uns_path_name(c->name);

		/* The names before 0.4 are not written. */
		if (!c->shard || !uns_zero_name_parse(name, &parsed) || parsed.kind != UNS_ZERO_OPTIM || parsed.mp ||
		    !uns_str_ends(name, "_optim_states.pt"))
			continue;
		out->dir = uns_arena_strn(arena, c->name, (size_t)(name - c->name));
		out->prefix = uns_str_starts(name, "bf16_") ? "bf16_" : "";
		return out->dir ? 0 : uns_oom(err);
	}
	return UNS_CATALOG_FAIL(cat, err, NO_ZERO_SHARDS, .scope = UNS_SCOPE_OPTIMIZER);
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

/* Whole, or what the rank holds of it. Names that share bytes in the checkpoint share one storage here too. */
static const struct uns_value *tensor_value(struct model *m, const struct uns_tensor *t)
{
	const struct uns_tensor *of = t->alias_of == UNS_NONE ? t : &m->plan->cat->tensors[t->alias_of], *held;
	struct uns_torch_part *part = UNS_NEW(&m->arena, struct uns_torch_part);
	struct uns_torch_leaf leaf = { .out = t->dtype, .part = part, .n_parts = 1 };
	uint32_t index = uns_map_index(&m->leaf_of, of->name);

	if (index != UNS_MAP_NO_INDEX && uns_shape_equal(&of->shape, &t->shape) && of->dtype == t->dtype)
		return uns_value_new_tensor(&m->arena, index);
	held = uns_zero_plan_held(m->plan, t, &m->out->arena);
	if (!part || !held || !uns_map_put_index(&m->leaf_of, t->name, (uint32_t)m->state.leaves.n)) {
		m->arena.failed = true;
		return NULL;
	}
	if (held == t)
		return uns_torch_tensor_add(&m->state.leaves, &m->arena, t);
	*part = (struct uns_torch_part){ held, 0, uns_shape_elems(&held->shape) };
	leaf.shape = held->shape;
	return uns_torch_leaf_add(&m->state.leaves, &m->arena, &leaf);
}

static struct uns_value *ordered_dict(struct uns_arena *arena, size_t cap)
{
	struct uns_value *dict = uns_value_new_dict(arena, cap);

	if (dict)
		dict->cls = "collections.OrderedDict";
	return dict;
}

/* The model's state dict. A pipeline's is in the files of its layers. */
static const struct uns_value *module_value(struct model *m)
{
	static const uint8_t nothing[1];
	const struct uns_catalog *cat = m->plan->cat;
	struct uns_value *dict = ordered_dict(&m->arena, cat->n_tensors + cat->n_values);
	struct uns_torch_leaf empty = { .shape = { .n = 1 }, .literal = nothing };
	const struct uns_tensor *t;
	size_t i;

	if (cat->summary.is_pipeline)
		return uns_value_new_none(&m->arena);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (!uns_role_is_model(t->role) || uns_engine_is_expert(cat, t->name) ||
		    uns_engine_autoep(cat, t->name))
			continue;
		empty.out = t->dtype; /* what stage 3 puts in a parameter's place */
		uns_value_put_str(&m->arena, dict, t->name,
				  m->plan->sliced && t->role == UNS_ROLE_WEIGHT
					  ? uns_torch_leaf_add(&m->state.leaves, &m->arena, &empty)
					  : tensor_value(m, t));
	}
	for (i = 0; i < cat->n_values; i++)
		if (strcmp(cat->values[i].root, "model") == 0)
			uns_value_put_str(&m->arena, dict, cat->values[i].name, cat->values[i].value);
	return dict;
}

/* -- frozen parameters -- */

/* The rank's slice of a frozen parameter, with zeros behind it if it is shorter than the others'. */
static const struct uns_value *frozen_slice(struct model *m, const struct uns_tensor *whole)
{
	const struct uns_tensor *t = uns_zero_plan_held(m->plan, whole, &m->out->arena);
	const struct uns_zero_layout layout = { .sliced = true, .world = m->plan->world };
	struct uns_zero_stretch stretch = { 0 };
	struct uns_torch_part *part = UNS_NEW_N(&m->arena, struct uns_torch_part, 2);
	struct uns_torch_leaf leaf = { .out = whole->dtype, .part = part, .n_parts = 2 };
	uint64_t elems, n;

	if (!part || !t) {
		m->arena.failed = true;
		return NULL;
	}
	elems = uns_shape_elems(&t->shape);
	n = uns_zero_slice(elems, m->plan->world);
	leaf.shape = (struct uns_shape){ .n = 1, .dim = { n } };
	if (!uns_zero_stretch_of(&layout, 0, elems, m->rank, &stretch))
		stretch.first = stretch.count = 0;
	part[0] = (struct uns_torch_part){ t, stretch.first, stretch.count };
	part[1] = (struct uns_torch_part){ NULL, 0, n - stretch.count };
	return uns_torch_leaf_add(&m->state.leaves, &m->arena, &leaf);
}

/* Tensor parallelism cut all parameters, and not AutoEP some of the experts' alone. */
static bool cuts_all(const struct uns_zero_plan *plan)
{
	return plan->slices->n_ranks > 1 && !plan->cat->summary.is_autoep;
}

static int put_frozen(struct model *m, struct uns_err *err)
{
	const struct uns_value *saved = uns_catalog_value(m->plan->cat, "model_states", "frozen_param_shapes");
	const bool any = saved && saved->kind == UNS_VALUE_DICT;
	struct uns_value *fragments = any ? ordered_dict(&m->arena, saved->n) : uns_value_new_none(&m->arena);
	struct uns_value *shapes = ordered_dict(&m->arena, any ? saved->n : 0);
	const struct uns_zero_cut_up *cut;
	const struct uns_shape *shape;
	const struct uns_tensor *t;
	const char *name;
	size_t i;

	for (i = 0; any && i < saved->n; i++) {
		name = uns_value_str(saved->pair[i].key);
		t = name ? uns_catalog_find(m->plan->cat, UNS_ROLE_WEIGHT, name) : NULL;
		if (!t)
			return UNS_CATALOG_FAIL(m->plan->cat, err, ZERO_FROZEN_MISSING, .scope = UNS_SCOPE_WEIGHTS,
						.tensor = name ? name : "?");
		uns_value_put_str(&m->arena, fragments, name,
				  m->plan->sliced ? frozen_slice(m, t) : tensor_value(m, t));
		cut = uns_zero_cut_find(m->plan->slices, name);
		shape = cut ? &cut->slice[m->plan->mp].shape : NULL; /* of the slice that the rank holds */
		uns_value_put_str(&m->arena, shapes, name,
				  shape ? uns_value_new_size(&m->arena, shape->dim, shape->n) : saved->pair[i].value);
	}
	uns_value_put_str(&m->arena, m->state.dict, "frozen_param_fragments", fragments);
	if (any && cuts_all(m->plan))
		uns_value_put_str(&m->arena, m->state.dict, "frozen_param_shapes", shapes);
	return 0;
}

/* -- the rest of the file -- */

static const struct uns_value *shapes_value(const struct uns_zero_plan *plan, struct uns_arena *arena)
{
	struct uns_value *list = uns_value_new_list(arena, plan->n_cuts), *dict;
	const struct uns_zero_member *v;
	size_t i;

	for (i = 0; i < plan->n_cuts; i++) {
		dict = ordered_dict(arena, plan->cut[i].n);
		for (v = plan->cut[i].v; v < plan->cut[i].v + plan->cut[i].n; v++)
			uns_value_put_str(arena, dict, v->name,
					  uns_value_new_size(arena, v->fp32->shape.dim, v->fp32->shape.n));
		uns_value_append(list, dict);
	}
	return list;
}

static int make_model(struct model *m, struct uns_err *err)
{
	const struct uns_zero_plan *plan = m->plan;
	const bool cut = cuts_all(plan), autoep = plan->cat->summary.is_autoep;
	const char *const without[] = { "param_shapes",
					"shared_params",
					"dp_world_size",
					autoep ? "ds_autoep_layers"
					: cut  ? "frozen_param_shapes"
					       : NULL,
					autoep ? "universal_checkpoint_info" : NULL,
					NULL };
	const struct uns_value *shared = uns_catalog_value(plan->cat, "model_states", "shared_params");
	struct uns_arena *arena = &m->arena;
	struct uns_value *dict;

	UNS_TRY(uns_engine_model_state(plan->cat, 0, without, 10, m->out, &m->state, err));
	dict = m->state.dict;
	if (autoep)
		uns_zero_autoep_put_layers(plan, m->rank, arena, dict);
	uns_value_put_str(arena, dict, "module", module_value(m));
	UNS_TRY(put_frozen(m, err));
	uns_value_put_str(arena, dict, "optimizer", uns_value_new_none(arena));
	uns_value_put_str(arena, dict, "param_shapes", shapes_value(plan, arena));
	if (!shared || (plan->sliced && m->rank > 0)) /* at stage 3 only rank 0's file lists them */
		shared = uns_value_new_dict(arena, 0);
	uns_value_put_str(arena, dict, "shared_params", shared);
	uns_value_put_str(arena, dict, "dp_world_size", uns_value_new_int(arena, (int64_t)plan->world));
	return uns_arena_check(arena, err);
}

static int layout_model(const struct uns_zero_plan *plan, uint64_t rank, struct uns_vtree *out,
			struct uns_layout *layout, struct uns_err *err)
{
	UNS_CLEANUP(model_fini)
	struct model m = { .plan = plan, .rank = rank, .out = out };
	struct uns_torch_input in = {
		.cat = plan->cat, .leaves = &m.state.leaves, .stem = "model_states", .classes = uns_engine_classes
	};

	UNS_TRY(make_model(&m, err));
	in.root = m.state.dict;
	return uns_part_torch_file(&in, &out->arena, layout, err);
}

static int add_model(const struct uns_zero_plan *plan, const struct uns_zero_naming *names, struct uns_vtree *out,
		     struct uns_err *err)
{
	struct uns_vfile file = { .source = UNS_NONE,
				  .origin = "the checkpoint's model file, for another number of "
					    "ranks" };
	const struct uns_value *frozen = uns_catalog_value(plan->cat, "model_states", "frozen_param_shapes");
	bool differ = plan->cat->summary.is_autoep || (frozen && frozen->kind == UNS_VALUE_DICT && frozen->n);
	uint64_t r;

	for (r = 0; r < (plan->sliced ? plan->world : 1); r++) {
		UNS_TRY_ALLOC(file.path = path_of(plan, names, "", UNS_ZERO_MODEL, plan->sliced ? (int64_t)r : -1,
						  &out->arena),
			      err);
		/* Where nothing is sliced, all ranks but the first have the same. */
		if (r < 2 || differ)
			UNS_TRY(layout_model(plan, r, out, &file.layout, err));
		UNS_TRY(uns_vtree_add(out, &file, err));
	}
	return 0;
}

int uns_zero_files_add(const struct uns_zero_plan *plan, const struct uns_zero_naming *names, struct uns_vtree *out,
		       struct uns_err *err)
{
	const struct uns_value *common;
	const char *path;
	uint64_t i, r;

	if (!plan->share)
		UNS_TRY(add_model(plan, names, out, err));
	UNS_TRY(uns_zero_shard_common(plan, out, &common, err));
	for (i = 0; i < plan->world / plan->n_shares; i++) {
		r = plan->first + i * plan->stride;
		UNS_TRY_ALLOC(path = path_of(plan, names, names->prefix, UNS_ZERO_OPTIM, (int64_t)r, &out->arena), err);
		UNS_TRY(uns_zero_shard_add(plan, common, r, path, out, err));
	}
	return 0;
}
