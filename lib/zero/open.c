/* The reader of DeepSpeed's files: a tag directory into tensors of the catalog.
 *
 * ZeRO cuts an optimizer over the data-parallel ranks: each rank's optimizer file holds its part of the fp32 copies and
 * moments, as flat tensors without names. The model file says which parameters there are, in which order and of
 * which shapes; by zero/layout.h's rules this gives the elements of each parameter that a flat tensor holds,
 * and every such stretch becomes a piece of that parameter's tensor. Weights come from the model file itself, or, at
 * stage 3, which saves none, are the fp32 copies rounded.
 *
 * The ranks that share one optimizer are a world (zero/world.h); a pipeline has one for each stage, and they
 * are read one after the other. This file owns that order, and decides what is lost if a file is missing. */
#include "zero/open.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "zero/deal.h"
#include "zero/gathered.h"
#include "zero/groups.h"
#include "zero/model.h"
#include "zero/universal.h"
#include "zero/values.h"
#include "zero/whole.h"
#include "zero/world.h"

struct opening {
	struct uns_catalog *cat;
	const struct uns_zero_input *in;
	struct uns_zero_found *out;
	struct uns_zero_names names;
	bool values_added; /* of the first model file and optimizer shard */
	bool optim_values_added;
};

static void opening_fini(struct opening *o)
{
	uns_zero_names_fini(&o->names);
}

/* -- the model file of one world -- */

struct world {
	struct uns_zero_world zero;
	struct uns_zero_file file;
	struct uns_zero_model model;
	const struct uns_zero_entry *models, *optims;
	size_t n_models, n_optims;
	bool sliced; /* stage 3, by the model files' names */
	int32_t *group_of;
};

static void world_fini(struct world *w)
{
	uns_zero_file_close(&w->file);
	uns_zero_world_fini(&w->zero);
}

static int open_model(struct opening *o, struct world *w, const struct uns_zero_entry *e,
		      struct uns_err *err)
{
	UNS_TRY(uns_zero_file_open(o->cat, e->file, &o->cat->arena, &w->file, err));
	if (uns_zero_model_parse(w->file.torch.root, &o->cat->arena, &w->model, err) < 0)
		return uns_fail_in_file(err, e->path);
	w->zero.where = e->path;
	return 0;
}

/* 1 = found: the lowest rank's that can be read. Of stage 3 all hold the same names and shapes. */
static int find_model(struct opening *o, struct world *w, struct uns_err *err)
{
	struct uns_err why;
	char name[64];
	size_t i;

	for (i = 0; i < w->n_models; i++) {
		why = (struct uns_err){ .keep = &w->zero.scratch };
		uns_zero_file_close(&w->file);
		if (open_model(o, w, &w->models[i], &why) == 0)
			return 1;
		UNS_TRY(uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_ALL, &why, err));
	}
	if (w->n_models)
		return 0;
	snprintf(name, sizeof(name), "mp_rank_%02d_model_states.pt", w->zero.mp);
	return uns_catalog_add_finding(o->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_MODEL_FILE_MISSING,
						   .scope = UNS_SCOPE_ALL, .expected = uns_str(name)),
				       err);
}

static int64_t count_of(const struct uns_value *root, const char *key)
{
	int64_t n;

	return uns_value_int(uns_value_get(root, key), &n) && n >= 0 ? n : UNS_UNKNOWN;
}

static void take_facts(struct opening *o, const struct uns_value *root)
{
	int64_t stage;

	o->out->global_steps = count_of(root, "global_steps");
	o->out->dp_world_size = count_of(root, "dp_world_size");
	o->out->mp_world_size = count_of(root, "mp_world_size");
	if (uns_value_int(uns_zero_setting(uns_value_get(root, "ds_config"), "stage"), &stage) &&
	    stage >= 0 && stage <= 3)
		o->out->stage = (int)stage;
}

static int take_values(struct opening *o, const struct world *w, struct uns_err *err)
{
	if (o->values_added)
		return 0;
	o->values_added = true;
	take_facts(o, w->model.root);
	return uns_zero_values_add_model(o->cat, &w->file, err);
}

/* -- its optimizer -- */

/* Which param group the shapes belong to; without param groups they are in none. */
static int assign_groups(struct world *w, struct uns_err *err)
{
	struct uns_zero_world *z = &w->zero;
	size_t g;

	w->group_of = UNS_NEW_N(&z->scratch, int32_t, z->n_shapes);
	if (!w->group_of)
		return uns_oom(err);
	for (g = 0; g < z->n_shapes; g++)
		w->group_of[g] = -1;
	uns_zero_groups_assign(z, uns_zero_sub_group_size(uns_value_get(w->model.root, "ds_config")),
			       w->group_of);
	return 0;
}

static int add_optim_values(struct opening *o, const struct uns_zero_world *z, struct uns_err *err)
{
	if (o->optim_values_added || !z->any)
		return 0;
	o->optim_values_added = true;
	return uns_zero_values_add_optim(o->cat, z->rank[0].file, z->any->dict, err);
}

static int add_optimizer(struct opening *o, struct world *w, struct uns_err *err)
{
	struct uns_zero_world *z = &w->zero;

	UNS_TRY(assign_groups(w, err));
	UNS_TRY(uns_zero_groups_add(z, w->group_of, &o->names.masters, err));
	UNS_TRY(uns_zero_states_add(z, w->group_of, &o->names.masters, err));
	if (o->in->dir->n_mp == 1)
		UNS_TRY(uns_zero_undeal(z, uns_value_get(w->model.root, "ds_config"), err));
	return add_optim_values(o, z, err);
}

/* What `from` holds now; `from` grows later. Keys are borrowed. */
static int copy_map(const struct uns_map *from, struct uns_map *to, struct uns_err *err)
{
	const char *key;
	void *value;
	size_t at = 0;

	while (uns_map_next(from, &at, &key, &value))
		if (!uns_map_put(to, key, value, NULL))
			return uns_oom(err);
	return 0;
}

/* n_ranks is only needed to find the sub-groups. */
static int add_universal(struct opening *o, struct world *w, struct uns_err *err)
{
	struct uns_zero_universal u = { .root = o->in->root,
					.path = o->in->universal_path,
					.name = o->in->universal_name };
	struct uns_zero_world *z = &w->zero;
	int64_t dp = count_of(w->model.root, "dp_world_size");
	UNS_CLEANUP(uns_map_fini) struct uns_map before = UNS_MAP_INIT;

	z->n_ranks = dp > 0 && dp < 1 << 16 ? (size_t)dp : 1;
	UNS_TRY(uns_zero_universal_open(z, &u, err));
	UNS_TRY(assign_groups(w, err));
	UNS_TRY(copy_map(&o->names.masters, &before, err));
	UNS_TRY(uns_zero_universal_add(z, &u, w->group_of, &o->names.masters, err));
	/* After the states: a step may be a plain number in a file. */
	UNS_TRY(uns_zero_groups_add(z, w->group_of, &before, err));
	if (o->in->dir->n_mp == 1)
		UNS_TRY(uns_zero_undeal(z, uns_value_get(w->model.root, "ds_config"), err));
	return add_optim_values(o, z, err);
}

static int no_optimizer(struct opening *o, struct world *w, struct uns_err *err)
{
	const struct uns_value *whole = uns_value_get(w->model.root, "optimizer");
	char names[64];

	if (whole && whole->kind == UNS_VALUE_DICT)
		return uns_zero_whole_add(o->cat, &w->file, whole, &o->names, err);
	if (!w->model.has_shapes)
		return 0; /* stage 0, saved without an optimizer */
	snprintf(names, sizeof(names), "zero_pp_rank_*_mp_rank_%02d_optim_states.pt", w->zero.mp);
	return uns_catalog_add_finding(o->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_OPTIMIZER_MISSING,
						   .scope = w->zero.scope, .file = w->zero.where,
						   .expected = uns_str(names)),
				       err);
}

/* -- its weights -- */

/* Model files of all ranks of stage 3, by rank; those that are missing too. */
static int list_models(struct opening *o, struct world *w, uint32_t **out, size_t *n,
		       struct uns_err *err)
{
	int64_t dp = count_of(w->model.root, "dp_world_size");

	*n = w->zero.n_ranks ? w->zero.n_ranks : dp > 0 && dp < 1 << 16 ? (size_t)dp : 0;
	*out = UNS_NEW_N(&w->zero.scratch, uint32_t, *n);
	if (!*out)
		return uns_oom(err);
	return uns_zero_dir_ranks(o->cat, o->in->root, w->models, w->n_models, *out, *n, err);
}

/* Rank 0 alone records the shared parameters; the others are needed for frozen slices only (a version
 * of DeepSpeed wrote no more than rank 0's). */
static int tell_missing_models(struct opening *o, const struct world *w, const uint32_t *files,
			       size_t n, struct uns_err *err)
{
	bool needed = w->model.frozen.n;
	const struct uns_file *f;
	size_t r;

	for (r = 0; r < n; r++) {
		f = &o->cat->files[files[r]];
		if (!f->missing)
			continue;
		return uns_catalog_add_finding(
			o->cat,
			UNS_FINDING(.id = needed ? UNS_FOUND_ZERO_FROZEN_SLICES_MISSING
						 : UNS_FOUND_ZERO_MODEL_FILES_MISSING,
				    .scope = needed ? UNS_SCOPE_WEIGHTS : UNS_SCOPE_NOTE,
				    .file = f->path, .rank = uns_num(r), .expected = uns_num(n)),
			err);
	}
	return 0;
}

static int add_frozen(struct opening *o, struct world *w, struct uns_err *err)
{
	uint32_t *files;
	size_t n;

	if (!w->sliced)
		return 0;
	UNS_TRY(list_models(o, w, &files, &n, err));
	UNS_TRY(tell_missing_models(o, w, files, n, err));
	return uns_zero_frozen_add(o->cat, &w->model, files, n, &o->names, err);
}

static int note_rounded(struct opening *o, struct uns_err *err)
{
	size_t i, n = 0;

	for (i = 0; i < o->cat->n_tensors; i++)
		n += o->cat->tensors[i].role == UNS_ROLE_WEIGHT && !o->cat->tensors[i].n_pieces &&
		     o->cat->tensors[i].alias_of != UNS_NONE &&
		     o->cat->tensors[o->cat->tensors[i].alias_of].role == UNS_ROLE_MASTER;
	if (!n)
		return 0;
	return uns_catalog_add_finding(o->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_WEIGHTS_ROUNDED,
						   .arg = { { "n", uns_num(n) } }),
				       err);
}

static int add_weights(struct opening *o, struct world *w, struct uns_err *err)
{
	const struct uns_value *module = uns_value_get(w->model.root, "module");
	struct uns_err why = { .keep = &w->zero.scratch };

	UNS_TRY(add_frozen(o, w, err));
	if (uns_zero_model_add(o->cat, &w->model, &w->file, module, "", &o->names, &why) < 0) {
		uns_fail_in_file(&why, w->zero.where);
		return uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_WEIGHTS, &why, err);
	}
	UNS_TRY(uns_zero_model_add_shared(o->cat, &w->model, &o->names, err));
	if (!w->zero.broken) /* if it is, what is missing has been reported */
		UNS_TRY(uns_zero_model_check(o->cat, &w->model, w->zero.where, &o->names, err));
	return note_rounded(o, err);
}

/* -- worlds -- */

static bool is_pipeline(const struct world *w)
{
	const struct uns_value *module = uns_value_get(w->model.root, "module");

	return !module || module->kind == UNS_VALUE_NONE;
}

/* 1 = it is, and a finding says so. */
static int is_tensor_parallel(struct opening *o, const struct world *w, struct uns_err *err)
{
	const struct uns_value *dims =
		uns_value_get(w->model.root, "checkpoint_parallel_dimensions");
	int64_t tp = count_of(dims, "tp_degree");

	if (tp <= 1 && (tp == 1 || o->in->dir->n_mp == 1 || is_pipeline(w)))
		return 0;
	UNS_TRY(uns_catalog_add_finding(o->cat,
					UNS_FINDING(.id = UNS_FOUND_ZERO_TENSOR_PARALLEL,
						    .scope = UNS_SCOPE_ALL,
						    .arg = { { "n", uns_num(o->in->dir->n_mp) } }),
					err));
	return 1;
}

static int add_world_parts(struct opening *o, struct world *w, struct uns_err *err)
{
	UNS_TRY(take_values(o, w, err));
	w->zero.shapes = w->model.shapes;
	w->zero.n_shapes = w->model.n_shapes;
	if (w->sliced && o->in->beside)
		UNS_TRY(uns_zero_gathered_add(o->cat, o->in->root, o->in->beside_path,
					      o->in->beside, &w->model, &o->names, err));
	w->zero.scope = w->sliced && !o->names.weights.n ? UNS_SCOPE_ALL : UNS_SCOPE_OPTIMIZER;
	/* Stage 0's optimizer is found by comparing it with the weights. */
	if (o->in->universal_path)
		UNS_TRY(add_universal(o, w, err));
	else if (w->n_optims)
		UNS_TRY(uns_zero_world_read(&w->zero, o->in->root, w->optims, w->n_optims, err));
	if (!o->in->universal_path && w->zero.any)
		UNS_TRY(add_optimizer(o, w, err));
	if (!is_pipeline(w))
		UNS_TRY(add_weights(o, w, err));
	if (o->in->universal_path)
		UNS_TRY(uns_zero_deal_check(&w->zero, &w->file, &o->names,
					    uns_value_get(w->model.root, "ds_config"), err));
	return w->n_optims || o->in->universal_path ? 0 : no_optimizer(o, w, err);
}

/* 1 = nothing more can be said of this checkpoint. */
static int add_world(struct opening *o, int32_t mp, bool *pipeline, struct uns_err *err)
{
	UNS_CLEANUP(world_fini) struct world w = { .file.fd = -1,
						   .zero = { .cat = o->cat, .mp = mp } };
	int code;

	w.models = uns_zero_dir_of(o->in->dir, UNS_ZERO_MODEL, mp, &w.n_models);
	w.optims = uns_zero_dir_of(o->in->dir, UNS_ZERO_OPTIM, mp, &w.n_optims);
	/* A universal directory for all stages has both: the whole one goes first. */
	w.sliced = w.n_models && w.models[0].name.dp >= 0;
	code = find_model(o, &w, err);
	if (code <= 0)
		return code;
	code = is_tensor_parallel(o, &w, err);
	if (code)
		return code;
	*pipeline = is_pipeline(&w);
	return add_world_parts(o, &w, err);
}

/* -- a pipeline's layers -- */

static int add_layer(struct opening *o, const struct uns_zero_entry *e, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_zero_model none = { 0 };
	char prefix[16];

	snprintf(prefix, sizeof(prefix), "%d.", e->name.layer);
	UNS_TRY(uns_zero_file_open(o->cat, e->file, &o->cat->arena, &file, err));
	if (uns_zero_model_add(o->cat, &none, &file, file.torch.root, prefix, &o->names, err) < 0)
		return uns_fail_in_file(err, e->path);
	return 0;
}

static int check_layers(struct opening *o, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < o->cat->n_tensors; i++)
		if (o->cat->tensors[i].role == UNS_ROLE_MASTER &&
		    !uns_map_get(&o->names.weights, o->cat->tensors[i].name))
			return uns_catalog_add_finding(
				o->cat,
				UNS_FINDING(.id = UNS_FOUND_ZERO_LAYER_MISSING,
					    .scope = UNS_SCOPE_WEIGHTS,
					    .tensor = o->cat->tensors[i].name),
				err);
	return 0;
}

static int add_layers(struct opening *o, struct uns_err *err)
{
	const struct uns_zero_entry *e;
	struct uns_err why;
	size_t n;

	e = uns_zero_dir_of(o->in->dir, UNS_ZERO_LAYER, -1, &n);
	for (; n; n--, e++) {
		why = (struct uns_err){ .keep = &o->cat->arena };
		if (add_layer(o, e, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	return check_layers(o, err);
}

static int tell_experts(struct opening *o, struct uns_err *err)
{
	size_t n;
	const struct uns_zero_entry *e = uns_zero_dir_of(o->in->dir, UNS_ZERO_EXPERT, -1, &n);

	if (!n)
		return 0;
	return uns_catalog_add_finding(o->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_EXPERTS,
						   .scope = UNS_SCOPE_ALL, .file = e->path,
						   .arg = { { "n", uns_num(n) } }),
				       err);
}

int uns_zero_add(struct uns_catalog *cat, const struct uns_zero_input *in,
		 struct uns_zero_found *out, struct uns_err *err)
{
	UNS_CLEANUP(opening_fini) struct opening o = { .cat = cat, .in = in, .out = out };
	bool pipeline = false;
	size_t i;
	int code = 0;

	*out = (struct uns_zero_found){ -1, UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN };
	UNS_TRY(tell_experts(&o, err));
	for (i = 0; i < in->dir->n_mp && code == 0; i++)
		code = add_world(&o, in->dir->mp[i], &pipeline, err);
	if (code < 0)
		return code;
	if (pipeline && code == 0)
		UNS_TRY(add_layers(&o, err));
	return uns_catalog_assign_groups(cat, err);
}
