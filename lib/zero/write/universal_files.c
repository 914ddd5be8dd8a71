/* The writer of view universal: each parameter becomes a directory with a file for its fp32 copy and for each
 * moment, whole and without padding, so that a run with any number of ranks can cut them for itself. Beside them are
 * the param groups and the engine's own values. This file knows what DeepSpeed's universal loaders open and check. */
#include "zero/write/universal_files.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "zero/engine_state.h"
#include "files/lightning_file.h"
#include "names/template.h"
#include "files/torch_file.h"
#include "wire/value_new.h"
#include "parallel/experts.h"
#include "zero/names.h"

static bool may_be_directory(const char *name)
{
	enum { MAX_NAME = 255 };

	return *name && !strchr(name, '/') && strlen(name) <= MAX_NAME && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

int uns_universal_check_names(const struct uns_adam_params *params, struct uns_err *err)
{
	const char *name;
	size_t i;

	for (i = 0; i < params->n; i++) {
		name = params->v[i].name;
		if (!may_be_directory(name))
			return uns_fail(err, -ENOTSUP,
					"parameter \"%.80s\" has a name that a directory cannot have, and "
					"a universal checkpoint has a directory for each parameter",
					name);
	}
	return 0;
}

static int add_torch(const struct uns_catalog *cat, const struct uns_value *root, const struct uns_torch_leaves *leaves,
		     const char *stem, const char *path, const char *origin, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_torch_input in = {
		.cat = cat, .root = root, .leaves = leaves, .stem = stem, .classes = uns_engine_classes
	};

	return uns_torch_file_add(&in, path, origin, out, err);
}

/* -- one parameter -- */

struct param_files {
	const struct uns_universal_input *in;
	const struct uns_adam_param *param;
	struct uns_vtree *out;
};

static const char *path_of(const struct param_files *f, const char *state)
{
	return uns_arena_printf(&f->out->arena, "%s/zero/%s/%s.pt", f->in->dir,
				uns_strip_name(f->in->strip, f->param->name), state);
}

static const char *origin_of(const struct uns_tensor *t)
{
	if (t->role == UNS_ROLE_WEIGHT && t->dtype != UNS_F32)
		return "the weight, widened to fp32: the checkpoint holds no fp32 copy of it";
	return t->role == UNS_ROLE_WEIGHT ? "the weight, which is fp32" : "assembled from the checkpoint's optimizer";
}

/* Where ranks share the experts of deepspeed.moe, each calls its own by the same names, and the loader would take
 * another's: as one expert, which cannot be shared out, they make it fail instead (0.19.8: universal_checkpoint.py,
 * load_hp_checkpoint_state). AutoEP's are all in one parameter. */
static int add_tensor(const struct param_files *f, const char *state, const struct uns_tensor *t, struct uns_err *err)
{
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_arena *arena = &f->out->arena;
	const struct uns_torch_leaf leaf = { .tensor = t, .out = UNS_F32, .shape = t->shape };
	struct uns_value *dict = uns_value_new_dict(arena, 4);
	const char *name = f->param->name;
	const uint64_t n_experts =
		uns_engine_is_expert(f->in->catalog, name) ? 1 : uns_engine_autoep(f->in->catalog, name);

	uns_value_put_str(arena, dict, "cat_dim", uns_value_new_int(arena, 0));
	uns_value_put_str(arena, dict, "param", uns_torch_leaf_add(&leaves, arena, &leaf));
	if (n_experts) {
		uns_value_put_str(arena, dict, "is_expert_param", uns_value_new_bool(arena, true));
		uns_value_put_str(arena, dict, "ep_num_experts", uns_value_new_int(arena, (int64_t)n_experts));
	}
	UNS_TRY(uns_arena_check(arena, err));
	return add_torch(f->in->catalog, dict, &leaves, state, path_of(f, state), origin_of(t), f->out, err);
}

/* A parameter's step: a tensor, or a plain number where its optimizer keeps one. Megatron's param group has torch's or
 * Transformer Engine's, which is a number; torch's optimizers resume from a tensor. */
static const struct uns_value *step_of(const struct uns_universal_input *in, const struct uns_adam_param *p,
				       struct uns_arena *arena, struct uns_torch_leaves *leaves, const char **origin)
{
	const struct uns_value *hyper = uns_value_get(in->params->group[p->group]->hyper, "step");
	double step;

	*origin = "assembled from the checkpoint's optimizer";
	if (p->step)
		return uns_torch_tensor_add(leaves, arena, p->step);
	if (uns_value_float(hyper, &step))
		return in->catalog->summary.is_megatron ? uns_torch_step_add(leaves, arena, step) : hyper;
	*origin = "the training's step: the parameter's own was not saved";
	return uns_torch_step_add(leaves, arena, (double)in->global_step);
}

static int add_param(const struct uns_universal_input *in, const struct uns_adam_param *p, struct uns_vtree *out,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	const struct param_files f = { in, p, out };
	const struct uns_value *step;
	const char *origin;

	UNS_TRY(add_tensor(&f, "fp32", p->fp32, err));
	UNS_TRY(add_tensor(&f, "exp_avg", p->exp_avg, err));
	UNS_TRY(add_tensor(&f, "exp_avg_sq", p->exp_avg_sq, err));
	UNS_TRY_ALLOC(step = step_of(in, p, &out->arena, &leaves, &origin), err);
	return add_torch(in->catalog, step, &leaves, "step", path_of(&f, "step"), origin, out, err);
}

/* The same files again under a tied parameter's other names. */
static int add_aliases(const struct uns_universal_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_name = UNS_MAP_INIT;
	const struct uns_catalog *cat = in->catalog;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_adam_param *owner;
	struct uns_adam_param alias;
	size_t i;

	for (i = 0; i < in->params->n; i++)
		UNS_TRY_ALLOC(uns_map_put(&by_name, in->params->v[i].name, &in->params->v[i], NULL), err);
	for (; t < end; t++) {
		owner = t->role == UNS_ROLE_WEIGHT && t->alias_of != UNS_NONE
				? uns_map_get(&by_name, cat->tensors[t->alias_of].name)
				: NULL;
		if (!owner || uns_map_get(&by_name, t->name) || !may_be_directory(t->name))
			continue;
		alias = *owner;
		alias.name = t->name;
		UNS_TRY(add_param(in, &alias, out, err));
	}
	return 0;
}

/* -- what the param groups agree on -- */

/* 1 or 0. A value that cannot be written as a pickle equals no other. */
static int values_equal(const struct uns_value *a, const struct uns_value *b, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text x = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text y = UNS_TEXT_INIT;
	struct uns_err why = { 0 };
	int code = uns_pickle_emit(a, NULL, 0, NULL, &x, &why);

	if (code == 0)
		code = uns_pickle_emit(b, NULL, 0, NULL, &y, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return code == 0 && x.len == y.len && memcmp(x.p, y.p, x.len) == 0;
}

static const struct uns_value *hyper_of(const struct uns_adam_params *params, size_t group, const char *key)
{
	return uns_value_get(params->group[group]->hyper, key);
}

/* 1, 0 */
static int is_agreed(const struct uns_adam_params *params, const char *key, struct uns_err *err)
{
	const struct uns_value *first = hyper_of(params, 0, key), *v;
	int same = 1;
	size_t i;

	for (i = 1; i < params->n_groups && same > 0; i++) {
		v = hyper_of(params, i, key);
		same = first && v ? values_equal(first, v, err) : 0;
	}
	return same;
}

int uns_universal_differing(const struct uns_adam_params *params, struct uns_text *out, bool *lr, struct uns_err *err)
{
	const struct uns_value *hyper;
	const char *key;
	size_t g, i, k;
	int same;

	UNS_TRY(same = is_agreed(params, "lr", err));
	*lr = !same;
	for (g = 0; g < params->n_groups; g++) {
		hyper = params->group[g]->hyper;
		for (i = 0; hyper && i < hyper->n; i++) {
			key = uns_value_str(hyper->pair[i].key);
			for (k = 0; key && k < g && !hyper_of(params, k, key);)
				k++;
			if (!key || k < g) /* an earlier group has the key */
				continue;
			UNS_TRY(same = is_agreed(params, key, err));
			if (!same)
				uns_text_printf(out, "%s%s", out->len ? ", " : "", key);
		}
	}
	return out->failed ? uns_oom(err) : 0;
}

/* -- the optimizer as a whole -- */

/* A group's parameters are one flat tensor, as DeepSpeed's optimizer sees them. The name of a group of experts has the
 * number of ranks that shared them. deepspeed.moe's experts are all on every rank where this is loaded; AutoEP's may be
 * shared otherwise there, and keep the name that the run gives them. */
static const struct uns_value *groups_value(const struct uns_universal_input *in, struct uns_arena *arena)
{
	struct uns_value *list = uns_value_new_list(arena, in->params->n_groups), *hyper;
	size_t i;

	for (i = 0; i < in->params->n_groups; i++) {
		struct uns_group group = *in->params->group[i];

		if (uns_engine_experts(&group)) {
			hyper = uns_value_new_dict_of(arena, group.hyper, "name", 1);
			if (!in->catalog->summary.is_autoep)
				uns_value_put_str(arena, hyper, "name", uns_value_new_str(arena, UNS_ZERO_EXPERTS "1"));
			group.hyper = hyper;
		}
		uns_value_append(list, uns_engine_group(arena, &group, i, 1));
	}
	return list;
}

/* Stage 3 gives all groups what is in the first of these (0.19.8: stage3.py, load_hp_checkpoint_state_
 * from_checkpoint_dir_stage3); what it does not hold stays as the new run has it, for each group its own.
 * The learning rate is needed all the same: a schedule changes it only at its next step. */
static const struct uns_value *stage3_groups(const struct uns_universal_input *in, struct uns_arena *arena)
{
	const struct uns_adam_params *params = in->params;
	const struct uns_value *hyper = params->group[0]->hyper;
	struct uns_value *agreed = uns_value_new_dict(arena, hyper ? hyper->n : 0);
	struct uns_value *list = uns_value_new_list(arena, params->n_groups);
	struct uns_group first = *params->group[0];
	const char *key;
	size_t i;
	int same;

	for (i = 0; agreed && hyper && i < hyper->n; i++) {
		key = uns_value_str(hyper->pair[i].key);
		same = !key || strcmp(key, "lr") == 0 ? 1 : is_agreed(params, key, NULL);
		if (same < 0 || (same && !uns_value_put(agreed, hyper->pair[i].key, hyper->pair[i].value)))
			return NULL;
	}
	first.hyper = agreed;
	if (!agreed || !uns_value_append(list, uns_engine_group(arena, &first, 0, 1)))
		return NULL;
	for (i = 1; i < params->n_groups; i++)
		if (!uns_value_append(list, uns_engine_group(arena, params->group[i], i, 1)))
			return NULL;
	return list;
}

static int add_optimizer(const struct uns_universal_input *in, struct uns_vtree *out, struct uns_err *err)
{
	static const char *const kept[] = { "loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad", NULL };
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_arena *arena = &out->arena;
	/* {state: {0: {step}}, param_groups}: what stage 3 reads. */
	struct uns_value *stage3 = uns_value_new_dict(arena, 2), *states = uns_value_new_dict(arena, 1);
	struct uns_value *state = uns_value_new_dict(arena, 1), *dict;
	const struct uns_value *groups;
	const char *unused;

	UNS_TRY(uns_engine_optim_state(in->catalog, kept, NULL, 3, out, &dict, err));
	UNS_TRY_ALLOC(groups = stage3_groups(in, arena), err);
	uns_value_put_str(arena, state, "step", step_of(in, &in->params->v[0], arena, &leaves, &unused));
	uns_value_put(states, uns_value_new_int(arena, 0), state);
	uns_value_put_str(arena, stage3, "state", states);
	uns_value_put_str(arena, stage3, "param_groups", groups);
	uns_value_put_str(arena, dict, "ds_version", uns_engine_version(in->catalog, arena));
	uns_value_put_str(arena, dict, "param_groups", groups_value(in, arena));
	uns_value_put_str(arena, dict, "optimizer_state_dict", stage3);
	UNS_TRY(uns_arena_check(arena, err));
	return add_torch(in->catalog, dict, &leaves, "optimizer_state",
			 uns_arena_printf(arena, "%s/zero/optimizer_state.pt", in->dir),
			 "synthesised from the checkpoint's param groups", out, err);
}

/* -- the engine -- */

static const char *model_name(const struct uns_universal_input *in, int64_t rank, struct uns_arena *arena)
{
	const char *name = uns_zero_name_make(arena, UNS_ZERO_MODEL, rank, 0);

	return name ? uns_arena_printf(arena, "%s/%s", in->dir, name) : NULL;
}

/* One file under two names: stages 1 and 2 look for the one, stage 3 for the other. */
static int add_model_states(const struct uns_universal_input *in, struct uns_vtree *out, struct uns_err *err)
{
	/* Shapes and names of tensors that are not in the file, and how they were cut: here they are whole. */
	static const char *const without[] = { "param_shapes",
					       "frozen_param_shapes",
					       "shared_params",
					       "checkpoint_parallel_dimensions",
					       "mp_world_size",
					       "universal_checkpoint_info",
					       NULL };
	UNS_CLEANUP(uns_engine_state_fini) struct uns_engine_state state = { 0 };
	struct uns_torch_input torch = { .cat = in->catalog,
					 .leaves = &state.leaves,
					 .stem = "mp_rank_00_model_states",
					 .classes = uns_engine_classes };
	struct uns_arena *arena = &out->arena;
	struct uns_vfile file = { .path = model_name(in, -1, arena), .source = UNS_NONE };

	UNS_TRY(uns_engine_model_state(in->catalog, in->global_step, without, 3, out, &state, err));
	UNS_TRY_ALLOC(uns_value_put_str(arena, state.dict, "mp_world_size", uns_value_new_int(arena, 1)) &&
			      uns_value_put_str(arena, state.dict, "module", uns_value_new_dict(arena, 0)) &&
			      uns_value_put_str(arena, state.dict, "optimizer", uns_value_new_none(arena)),
		      err);
	torch.root = state.dict;
	file.origin = in->catalog->summary.has_engine_state ? "the checkpoint's model file without its tensors"
							    : "synthesised: what DeepSpeed's engine requires";
	if (in->catalog->summary.is_one_file) { /* the engine's values bring no tensors then */
		UNS_TRY(uns_lightning_front(in->catalog, &torch.front, &state.leaves, err));
		file.origin = "meta.pt, continued with what DeepSpeed's engine requires";
	}
	UNS_TRY(uns_part_torch_file(&torch, arena, &file.layout, err));
	UNS_TRY(file.path ? uns_vtree_add(out, &file, err) : uns_oom(err));
	file.path = model_name(in, 0, arena);
	return file.path ? uns_vtree_add(out, &file, err) : uns_oom(err);
}

int uns_universal_add(const struct uns_universal_input *in, struct uns_vtree *out, struct uns_err *err)
{
	size_t i;

	UNS_TRY(add_model_states(in, out, err));
	UNS_TRY(add_optimizer(in, out, err));
	for (i = 0; i < in->params->n; i++)
		UNS_TRY(add_param(in, &in->params->v[i], out, err));
	return add_aliases(in, out, err);
}
