/* The reader of DeepSpeed's files: a tag directory into tensors of the catalog.
 *
 * ZeRO cuts an optimizer over the data-parallel ranks: each rank's optimizer file holds its part of the fp32 copies and
 * moments, as flat tensors without names. The model file lists which parameters there are, in which order and of
 * which shapes; by zero/layout.h's rules this gives the elements of each parameter that a flat tensor holds,
 * and every such stretch becomes a piece of that parameter's tensor. Weights come from the model file itself, or, at
 * stage 3, which saves none, are the fp32 copies rounded.
 *
 * The ranks that share one optimizer are a world (zero/read/world.h); a pipeline has one for each stage, and they
 * are read one after the other. This file owns that order, and decides what is lost if a file is missing. */
#include "zero/read/open.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "zero/read/autoep_files.h"
#include "zero/read/counters.h"
#include "zero/read/deal.h"
#include "zero/read/expert_files.h"
#include "zero/read/gathered.h"
#include "zero/read/groups.h"
#include "zero/read/model.h"
#include "zero/read/universal.h"
#include "zero/values.h"
#include "zero/read/whole.h"
#include "zero/read/world.h"

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

/* -- the model files of one stage -- */

/* The files of one model-parallel rank. */
struct world {
	struct uns_zero_world zero;
	struct uns_zero_file file; /* the lowest model file that can be read, */
	struct uns_zero_model model; /* and what it holds */
	const struct uns_zero_entry *models, *optims;
	size_t n_models, n_optims;
	bool sliced; /* stage 3, by the model files' names */
	int32_t *group_of; /* the param group of each entry of zero.shapes; -1 = none, or not known */
};

/* A pipeline's stage, or the whole model: the worlds of all tensor-parallel ranks that share its parameters. */
struct stage {
	struct uns_arena scratch;
	struct world **w;             /* slices.n_ranks */
	struct uns_zero_world **zero; /* of each */
	struct uns_zero_slices slices;
	struct uns_zero_autoep autoep;
	bool broken; /* one of the worlds is, which has been reported */
};

static void world_fini(struct world *w)
{
	uns_zero_file_close(&w->file);
	uns_zero_world_fini(&w->zero);
}

static void stage_fini(struct stage *s)
{
	size_t k;

	for (k = 0; s->w && k < s->slices.n_ranks; k++)
		if (s->w[k])
			world_fini(s->w[k]);
	uns_zero_slices_fini(&s->slices);
	uns_zero_autoep_fini(&s->autoep);
	uns_arena_fini(&s->scratch);
}

/* Opens the lowest rank's model file that can be read. Of stage 3 all hold the same names and shapes. 1 = opened; 0 =
 * none can be read, which has been reported. */
static int open_model(struct opening *o, struct world *w, struct uns_err *err)
{
	const struct uns_zero_entry *e = w->models, *end = e + w->n_models;
	struct uns_err why;
	char name[64];

	for (; e < end; e++) {
		why = (struct uns_err){ .keep = &w->zero.scratch };
		uns_zero_file_close(&w->file);
		w->zero.where = e->path;
		if (uns_zero_file_open(o->cat, e->file, &o->cat->arena, &w->file, &why) == 0) {
			if (uns_zero_model_parse(w->file.torch.root, &o->cat->arena, &w->model, &why) == 0)
				return 1;
			uns_fail_in_file(&why, e->path);
		}
		UNS_TRY(uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_ALL, &why, err));
	}
	if (w->n_models)
		return 0;
	snprintf(name, sizeof(name), "mp_rank_%02d_model_states.pt", w->zero.mp);
	return UNS_ADD_FINDING(o->cat, err, ZERO_MODEL_FILE_MISSING, .scope = UNS_SCOPE_ALL, .expected = uns_str(name));
}

static int64_t count_of(const struct uns_value *root, const char *key)
{
	int64_t n;

	return uns_value_int(uns_value_get(root, key), &n) && n >= 0 ? n : UNS_UNKNOWN;
}

static bool is_pipeline(const struct world *w)
{
	const struct uns_value *module = uns_value_get(w->model.root, "module");

	return !module || module->kind == UNS_VALUE_NONE;
}

/* A value that each stage of a pipeline records for itself: all others are the same in the files of all. */
static int add_stage_value(struct opening *o, const struct world *w, const char *root, const struct uns_value *v,
			   struct uns_err *err)
{
	const struct uns_named_value value = { .name = uns_arena_printf(&o->cat->arena, "%d", w->zero.mp),
					       .root = root,
					       .value = v,
					       .file = w->file.index };

	return v ? uns_catalog_add_value(o->cat, &value, err) : 0;
}

static int add_model_values(struct opening *o, const struct world *w, struct uns_err *err)
{
	const struct uns_value *root = w->model.root;
	int64_t stage;

	if (is_pipeline(w))
		UNS_TRY(add_stage_value(o, w, UNS_ZERO_STAGE_SHAPES, uns_value_get(root, "param_shapes"), err));
	if (o->values_added)
		return 0;
	o->values_added = true;
	o->out->global_steps = count_of(root, "global_steps");
	o->out->dp_world_size = count_of(root, "dp_world_size");
	o->out->mp_world_size = count_of(root, "mp_world_size");
	if (uns_value_int(uns_zero_setting(uns_value_get(root, "ds_config"), "stage"), &stage) && stage >= 0 &&
	    stage <= 3)
		o->out->stage = (int)stage;
	return uns_zero_values_add_model(o->cat, &w->file, err);
}

/* -- its optimizer -- */

/* Which param group the shapes belong to; without param groups they are in none. */
static int assign_groups(struct world *w, struct uns_err *err)
{
	struct uns_zero_world *z = &w->zero;
	size_t g;

	UNS_TRY_ALLOC(w->group_of = UNS_NEW_N(&z->scratch, int32_t, z->n_shapes), err);
	for (g = 0; g < z->n_shapes; g++)
		w->group_of[g] = -1;
	uns_zero_groups_assign(z, uns_zero_sub_group_size(uns_value_get(w->model.root, "ds_config")), w->group_of);
	return 0;
}

static int add_optim_values(struct opening *o, const struct uns_zero_world *z, struct uns_err *err)
{
	if (o->optim_values_added || !z->any)
		return 0;
	o->optim_values_added = true;
	return uns_zero_values_add_optim(o->cat, z->rank[0].file, z->any->dict, err);
}

/* Gradients are dealt out only where there is one stage. */
static int undeal_groups(struct opening *o, struct stage *s, struct uns_err *err)
{
	if (o->in->dir->n_mp > s->slices.n_ranks)
		return 0;
	return uns_zero_undeal(s->zero[0], uns_value_get(s->w[0]->model.root, "ds_config"), err);
}

static int add_optimizer(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct world *w = s->w[0];

	UNS_TRY(assign_groups(w, err));
	UNS_TRY(uns_zero_groups_add(&w->zero, w->group_of, &o->names.masters, err));
	if (is_pipeline(w))
		UNS_TRY(add_stage_value(o, w, UNS_ZERO_STAGE_PADDINGS,
					uns_value_get(w->zero.any->dict, "param_alignment_paddings"), err));
	UNS_TRY(uns_zero_states_add(s->zero, &s->slices, w->group_of, &o->names.masters, err));
	UNS_TRY(undeal_groups(o, s, err));
	return add_optim_values(o, &w->zero, err);
}

/* A universal checkpoint holds parameters whole. */
static int make_shapes_whole(struct stage *s, struct uns_err *err)
{
	struct uns_zero_world *z = s->zero[0];
	const struct uns_zero_cut_up *cut;
	size_t g, i;

	for (g = 0; g < z->n_shapes; g++)
		for (i = 0; i < z->shapes[g].n; i++) {
			struct uns_zero_param *p = &z->shapes[g].v[i];

			cut = uns_zero_cut_find(&s->autoep.slices, p->name);
			if (s->slices.n_ranks > 1)
				UNS_TRY(uns_zero_cut_get(&s->slices, p->name, z->where, z->mp, &cut, err));
			if (!cut)
				continue;
			p->shape = cut->whole;
			p->elems = uns_shape_elems(&cut->whole);
		}
	return 0;
}

static int add_universal(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct uns_zero_universal u = { .root = o->in->root,
					.path = o->in->universal_path,
					.name = o->in->universal_name };
	UNS_CLEANUP(uns_map_fini) struct uns_map before = UNS_MAP_INIT;
	struct world *w = s->w[0];
	struct uns_zero_world *z = &w->zero;
	int64_t dp = count_of(w->model.root, "dp_world_size");
	const char *name;
	void *index;
	size_t at = 0;

	z->n_ranks = dp > 0 && dp < 1 << 16 ? (size_t)dp : 1; /* of use only to find the sub-groups */
	UNS_TRY(uns_zero_universal_open(z, &u, err));
	UNS_TRY(assign_groups(w, err));
	UNS_TRY(make_shapes_whole(s, err));
	while (uns_map_next(&o->names.masters, &at, &name, &index))
		UNS_TRY_ALLOC(uns_map_put(&before, name, index, NULL), err);
	UNS_TRY(uns_zero_universal_add(z, &u, w->group_of, &o->names.masters, err));
	/* After the states: a step may be a plain number in a file. */
	UNS_TRY(uns_zero_groups_add(z, w->group_of, &before, err));
	UNS_TRY(undeal_groups(o, s, err));
	return add_optim_values(o, z, err);
}

static int list_modules(struct stage *s, struct uns_zero_modules *out, struct uns_err *err)
{
	const struct uns_zero_file **file = UNS_NEW_N(&s->scratch, const struct uns_zero_file *, s->slices.n_ranks);
	const struct uns_value **dict = UNS_NEW_N(&s->scratch, const struct uns_value *, s->slices.n_ranks);
	size_t k;

	UNS_TRY_ALLOC(file && dict, err);
	for (k = 0; k < s->slices.n_ranks; k++) {
		file[k] = &s->w[k]->file;
		dict[k] = uns_value_get(s->w[k]->model.root, "module");
	}
	*out = (struct uns_zero_modules){ .slices = &s->slices, .file = file, .dict = dict };
	return 0;
}

/* Rank k has no shards of an optimizer: stage 0 keeps it whole in the model file, or it is missing. */
static int add_uncut(struct opening *o, struct stage *s, size_t k, struct uns_err *err)
{
	struct world *w = s->w[k];
	const struct uns_value *whole = uns_value_get(w->model.root, "optimizer");
	struct uns_zero_modules modules;
	char names[64];
	size_t n;

	if (!whole || whole->kind != UNS_VALUE_DICT) {
		if (!w->model.has_shapes)
			return 0; /* stage 0, saved without an optimizer */
		snprintf(names, sizeof(names), "zero_pp_rank_*_mp_rank_%02d_optim_states.pt", w->zero.mp);
		return UNS_ADD_FINDING(o->cat, err, ZERO_OPTIMIZER_MISSING, .scope = w->zero.scope,
				       .file = w->zero.where, .expected = uns_str(names));
	}
	if (uns_zero_dir_of(o->in->dir, UNS_ZERO_EXPERT, -1, &n))
		return UNS_ADD_FINDING(o->cat, err, ZERO_EXPERTS_UNNAMED, .scope = UNS_SCOPE_OPTIMIZER,
				       .file = w->zero.where);
	if (is_pipeline(w))
		return UNS_ADD_FINDING(o->cat, err, PIPELINE_STAGE_0, .scope = UNS_SCOPE_OPTIMIZER,
				       .file = w->zero.where);
	if (k)
		return 0; /* added with the first rank's */
	UNS_TRY(list_modules(s, &modules, err));
	return uns_zero_whole_add(o->cat, &modules, &o->names, err);
}

/* -- its weights -- */

/* Lists the model files of all ranks of stage 3, by rank, those that are missing too. Rank 0 alone records the shared
 * parameters; the others are needed for frozen slices only (a version of DeepSpeed wrote no more than rank 0's). */
static int list_models(struct opening *o, struct world *w, struct uns_zero_frozen *out, struct uns_err *err)
{
	int64_t dp = count_of(w->model.root, "dp_world_size");
	bool needed = w->model.frozen.n;
	size_t r;

	out->shapes = &w->model.frozen;
	out->n = w->zero.n_ranks ? w->zero.n_ranks : dp > 0 && dp < 1 << 16 ? (size_t)dp : 0;
	UNS_TRY_ALLOC(out->file = UNS_NEW_N(&w->zero.scratch, uint32_t, out->n), err);
	UNS_TRY(uns_zero_dir_ranks(o->cat, o->in->root, w->models, w->n_models, out->file, out->n, err));
	for (r = 0; r < out->n; r++)
		if (o->cat->files[out->file[r]].missing)
			return uns_catalog_add_finding(o->cat,
						       UNS_FINDING(.id = needed ? UNS_FOUND_ZERO_FROZEN_SLICES_MISSING
										: UNS_FOUND_ZERO_MODEL_FILES_MISSING,
								   .scope = needed ? UNS_SCOPE_WEIGHTS : UNS_SCOPE_NOTE,
								   .file = o->cat->files[out->file[r]].path,
								   .rank = uns_num(r), .expected = uns_num(out->n)),
						       err);
	return 0;
}

static int add_frozen(struct opening *o, struct stage *s, struct uns_err *err)
{
	const size_t n_ranks = s->slices.n_ranks;
	struct uns_zero_frozen *of = UNS_NEW_N(&s->scratch, struct uns_zero_frozen, n_ranks);
	size_t k;

	UNS_TRY_ALLOC(of, err);
	for (k = 0; k < n_ranks; k++) {
		if (!s->w[k]->sliced)
			return 0;
		UNS_TRY(list_models(o, s->w[k], &of[k], err));
	}
	return uns_zero_frozen_add(o->cat, of, &s->slices, &o->names, err);
}

/* What the model files leave out. */
static int add_experts(struct opening *o, struct stage *s, struct uns_err *err)
{
	const struct world *w = s->w[0];

	if (!s->autoep.n)
		return uns_zero_expert_files_add(o->cat, o->in->dir, &w->model, &o->names, err);
	UNS_TRY(uns_zero_autoep_add_routers(o->cat, &s->autoep, uns_value_get(w->model.root, "module"), &o->names,
					    err));
	if (w->sliced || o->in->universal_path)
		return uns_zero_autoep_add_rounded(o->cat, &s->autoep, &o->names, err);
	return uns_zero_autoep_files_add(o->cat, o->in->dir, &s->autoep, &o->names, err);
}

static int add_weights(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct uns_err why = { .keep = &s->scratch };
	struct uns_catalog *cat = o->cat;
	struct world *w = s->w[0];
	struct uns_zero_modules modules;
	size_t k, i, n_findings, n_rounded = 0;

	UNS_TRY(add_frozen(o, s, err));
	UNS_TRY(list_modules(s, &modules, err));
	if (uns_zero_model_add(cat, &w->model, &modules, "", &o->names, &why) < 0) {
		uns_fail_in_file(&why, w->zero.where);
		return uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err);
	}
	n_findings = cat->n_findings;
	UNS_TRY(add_experts(o, s, err));
	s->broken |= cat->n_findings > n_findings;
	UNS_TRY(uns_zero_model_add_shared(cat, &w->model, &o->names, err));
	/* If the stage is broken, what is missing has been reported. */
	for (k = 0; k < s->slices.n_ranks && !s->broken; k++)
		UNS_TRY(uns_zero_model_check(cat, &s->w[k]->model, s->w[k]->zero.where, &o->names, err));
	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		n_rounded += t->role == UNS_ROLE_WEIGHT && !t->n_pieces && t->alias_of != UNS_NONE &&
			     cat->tensors[t->alias_of].role == UNS_ROLE_MASTER;
	}
	return n_rounded ? UNS_ADD_FINDING(cat, err, ZERO_WEIGHTS_ROUNDED, .arg = { { "n", uns_num(n_rounded) } }) : 0;
}

/* -- stages -- */

static int add_optimizers(struct opening *o, struct stage *s, struct uns_err *err)
{
	bool all = true;
	size_t k;

	for (k = 0; k < s->slices.n_ranks; k++) {
		struct world *w = s->w[k];

		if (w->n_optims)
			UNS_TRY(uns_zero_world_read(&w->zero, o->in->root, w->optims, w->n_optims, err));
		UNS_TRY(uns_zero_world_spread(&w->zero, err));
		all = all && w->zero.any;
	}
	if (all)
		UNS_TRY(add_optimizer(o, s, err));
	for (k = 0; k < s->slices.n_ranks; k++)
		s->broken |= s->w[k]->zero.broken;
	return 0;
}

static int add_parts(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct world *w = s->w[0];
	size_t k;

	UNS_TRY(add_model_values(o, w, err));
	if (w->sliced && o->in->beside)
		UNS_TRY(uns_zero_gathered_add(o->cat, o->in->root, o->in->beside_path, o->in->beside, &w->model,
					      &o->names, err));
	for (k = 0; k < s->slices.n_ranks; k++) {
		s->zero[k]->config = uns_value_get(s->w[k]->model.root, "ds_config");
		s->zero[k]->autoep = s->autoep.n ? &s->autoep : NULL;
		s->zero[k]->shapes = s->w[k]->model.shapes;
		s->zero[k]->n_shapes = s->w[k]->model.n_shapes;
		s->zero[k]->scope = w->sliced && !o->names.weights.n ? UNS_SCOPE_ALL : UNS_SCOPE_OPTIMIZER;
	}
	/* Stage 0's optimizer is found by comparing it with the weights. */
	if (o->in->universal_path)
		UNS_TRY(add_universal(o, s, err));
	else
		UNS_TRY(add_optimizers(o, s, err));
	if (!is_pipeline(w))
		UNS_TRY(add_weights(o, s, err));
	if (o->in->universal_path)
		return uns_zero_deal_check(&w->zero, &w->file, &o->names, uns_value_get(w->model.root, "ds_config"),
					   err);
	for (k = 0; k < s->slices.n_ranks; k++)
		if (!s->w[k]->n_optims)
			UNS_TRY(add_uncut(o, s, k, err));
	return 0;
}

/* -- tensor parallelism -- */

/* 1 = its model file is open; 0 = there is none that can be read, which has been reported. */
static int open_world(struct opening *o, struct stage *s, int32_t mp, struct world **out, struct uns_err *err)
{
	struct world *w = UNS_NEW(&s->scratch, struct world);

	UNS_TRY_ALLOC(w, err);
	*w = (struct world){ .file.fd = -1, .zero = { .cat = o->cat, .mp = mp } };
	*out = w;
	w->models = uns_zero_dir_of(o->in->dir, UNS_ZERO_MODEL, mp, &w->n_models);
	w->optims = uns_zero_dir_of(o->in->dir, UNS_ZERO_OPTIM, mp, &w->n_optims);
	/* A universal directory for all stages has both: the whole one goes first. */
	w->sliced = w->n_models && w->models[0].name.dp >= 0;
	return open_model(o, w, err);
}

/* How many tensor-parallel ranks cut the parameters of this file. -1 = several, and how is not recorded. */
static int64_t tensor_parallel_ranks(const struct opening *o, const struct world *w)
{
	enum { MAX_TP = 1 << 12 };
	int64_t n = count_of(uns_value_get(w->model.root, "checkpoint_parallel_dimensions"), "tp_degree");

	if (n <= 1 && (n == 1 || o->in->dir->n_mp == 1 || is_pipeline(w)))
		return 1;
	return n > 1 && n <= MAX_TP && !is_pipeline(w) ? n : -1;
}

/* How tensor parallelism cut the parameters: all its ranks' files record the same, and of every trained parameter. */
static int read_slices(struct opening *o, struct stage *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_slices_fini) struct uns_zero_slices other = { 0 };
	const struct world *first = s->w[0];
	const struct uns_zero_cut_up *unused;
	const size_t n = s->slices.n_ranks;
	size_t k, g, i;

	if (n == 1)
		return 0;
	for (k = 0; k < n; k++) {
		struct world *w = s->w[k];
		struct uns_zero_slices *into = k ? &other : &s->slices;

		UNS_TRY(uns_zero_slices_read(uns_value_get(w->model.root, "universal_checkpoint_info"), w->zero.where,
					     n, k ? &s->scratch : &o->cat->arena, into, err));
		if (k)
			UNS_TRY(uns_zero_slices_compare(&s->slices, first->zero.where, &other, w->zero.where, k, err));
		uns_zero_slices_fini(&other);
		other = (struct uns_zero_slices){ 0 };
	}
	for (g = 0; g < first->model.n_shapes; g++)
		for (i = 0; i < first->model.shapes[g].n; i++)
			UNS_TRY(uns_zero_cut_get(&s->slices, first->model.shapes[g].v[i].name, first->zero.where,
						 first->zero.mp, &unused, err));
	return 0;
}

/* AutoEP's layers, which no other parallelism may have cut, and whose experts are trained. */
static int read_autoep(struct opening *o, struct stage *s, const struct world *found, struct uns_err *err)
{
	const char *cause = s->slices.n_ranks > 1 ? "tensor parallelism cut the parameters as well"
			    : is_pipeline(found)  ? "the model is a pipeline"
						  : NULL;
	size_t i;

	UNS_TRY(uns_zero_autoep_read(uns_value_get(found->model.root, "ds_autoep_layers"), found->zero.where,
				     &o->cat->arena, &s->autoep, err));
	for (i = 0; i < found->model.frozen.n && !cause; i++)
		if (uns_zero_cut_find(&s->autoep.slices, found->model.frozen.v[i].name))
			cause = "some of them are frozen";
	if (!s->autoep.n || !cause)
		return 0;
	return UNS_FAIL_WITH(err, ZERO_AUTOEP, .scope = UNS_SCOPE_ALL, .file = found->zero.where,
			     .arg = { { "cause", uns_str(cause) } });
}

/* It was the first of a stage before, and could not be opened, which has been reported. */
static bool was_tried(const struct opening *o, size_t k, int32_t mp)
{
	size_t i;

	for (i = 0; i < o->in->dir->n_mp && o->in->dir->mp[i] < mp; i++)
		if ((size_t)o->in->dir->mp[i] == k)
			return true;
	return false;
}

/* 1 = all worlds of the stage are open, and how they share parameters is known. *next: the first rank behind it. */
static int open_stage(struct opening *o, struct stage *s, int32_t mp, int32_t *next, struct uns_err *err)
{
	struct uns_err why = { .keep = &s->scratch };
	struct world *found = NULL;
	int64_t n;
	size_t k;
	int code = open_world(o, s, mp, &found, err);

	if (code < 0 && !found)
		return code;
	n = code > 0 ? tensor_parallel_ranks(o, found) : 1;
	*next = n > 1 ? (int32_t)n : n < 0 ? INT32_MAX : mp + 1;
	s->slices.n_ranks = (size_t)(n > 0 ? n : 1);
	s->w = UNS_NEW_N(&s->scratch, struct world *, s->slices.n_ranks);
	s->zero = UNS_NEW_N(&s->scratch, struct uns_zero_world *, s->slices.n_ranks);
	if (!s->w || !s->zero) {
		world_fini(found);
		s->w = NULL;
		return uns_oom(err);
	}
	s->w[(size_t)mp % s->slices.n_ranks] = found;
	if (n < 0)
		return UNS_ADD_FINDING(o->cat, err, ZERO_TENSOR_PARALLEL, .scope = UNS_SCOPE_ALL,
				       .arg = { { "n", uns_num(o->in->dir->n_mp) } });
	for (k = 0; k < s->slices.n_ranks && code > 0; k++) {
		if (!s->w[k])
			code = was_tried(o, k, mp) ? 0 : open_world(o, s, (int32_t)k, &s->w[k], err);
		if (code > 0)
			s->zero[k] = &s->w[k]->zero;
	}
	if (code <= 0)
		return code;
	if (read_slices(o, s, &why) < 0 || read_autoep(o, s, found, &why) < 0)
		return uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_ALL, &why, err);
	return 1;
}

static int add_stage(struct opening *o, int32_t mp, int32_t *next, bool *pipeline, struct uns_err *err)
{
	UNS_CLEANUP(stage_fini) struct stage s = { .slices = { .n_ranks = 1 } };
	int code = open_stage(o, &s, mp, next, err);

	if (code <= 0)
		return code;
	*pipeline = is_pipeline(s.w[0]);
	return add_parts(o, &s, err);
}

/* -- a pipeline's layers -- */

static int add_layers(struct opening *o, struct uns_err *err)
{
	const struct uns_zero_entry *e, *end;
	struct uns_catalog *cat = o->cat;
	char prefix[16];
	size_t n, i;

	e = uns_zero_dir_of(o->in->dir, UNS_ZERO_LAYER, -1, &n);
	end = e + n;
	for (i = 0; i < n; i++)
		if (e[i].name.mp > 0) /* one of several slices of a layer */
			return UNS_ADD_FINDING(cat, err, ZERO_TENSOR_PARALLEL, .scope = UNS_SCOPE_ALL,
					       .arg = { { "n", uns_num(o->in->dir->n_mp) } });
	for (; e < end; e++) {
		UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
		struct uns_err why = { .keep = &cat->arena };

		snprintf(prefix, sizeof(prefix), "%d.", e->name.layer);
		if (uns_zero_file_open(cat, e->file, &cat->arena, &file, &why) < 0 ||
		    uns_zero_model_add_file(cat, &file, prefix, &o->names, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_MASTER && !uns_map_get(&o->names.weights, cat->tensors[i].name))
			return UNS_ADD_FINDING(cat, err, ZERO_LAYER_MISSING, .scope = UNS_SCOPE_WEIGHTS,
					       .tensor = cat->tensors[i].name);
	return 0;
}

int uns_zero_add(struct uns_catalog *cat, const struct uns_zero_input *in, struct uns_zero_found *out,
		 struct uns_err *err)
{
	UNS_CLEANUP(opening_fini) struct opening o = { .cat = cat, .in = in, .out = out };
	const struct uns_zero_entry *experts;
	bool pipeline = false;
	int32_t next = 0;
	size_t i, n;

	*out = (struct uns_zero_found){ -1, UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN };
	experts = uns_zero_dir_of(in->dir, UNS_ZERO_EXPERT, -1, &n);
	if (n && in->dir->n_mp > 1) /* experts of several model-parallel ranks are not put together */
		UNS_TRY(UNS_ADD_FINDING(cat, err, ZERO_EXPERTS, .scope = UNS_SCOPE_ALL, .file = experts->path));
	for (i = 0; i < in->dir->n_mp; i++)
		if (in->dir->mp[i] >= next)
			UNS_TRY(add_stage(&o, in->dir->mp[i], &next, &pipeline, err));
	if (pipeline)
		UNS_TRY(add_layers(&o, err));
	UNS_TRY(uns_zero_counters_check(cat, in->dir, err));
	return uns_catalog_assign_groups(cat, err);
}
