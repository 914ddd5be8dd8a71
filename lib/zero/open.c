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
#include "zero/autoep_files.h"
#include "zero/deal.h"
#include "zero/expert_files.h"
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

/* -- the model files of one stage -- */

struct world {
	struct uns_zero_world zero;
	struct uns_zero_file file;
	struct uns_zero_model model;
	const struct uns_zero_entry *models, *optims;
	size_t n_models, n_optims;
	bool sliced; /* stage 3, by the model files' names */
	int32_t *group_of;
};

/* A pipeline's stage, or the whole model: the worlds of all tensor-parallel ranks that share its parameters. */
struct stage {
	struct uns_arena scratch;
	struct world **w;             /* slices.n_ranks */
	struct uns_zero_world **zero; /* of each */
	struct uns_zero_slices slices;
	struct uns_zero_autoep autoep;
	bool broken; /* a problem of one of the worlds says so */
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

static bool is_pipeline(const struct world *w)
{
	const struct uns_value *module = uns_value_get(w->model.root, "module");

	return !module || module->kind == UNS_VALUE_NONE;
}

/* What is of the pipeline's stage: the other values are the same in the files of all. */
static int take_of_stage(struct opening *o, const struct world *w, const char *root, const struct uns_value *v,
			 struct uns_err *err)
{
	const struct uns_named_value value = { .name = uns_arena_printf(&o->cat->arena, "%d", w->zero.mp),
					       .root = root,
					       .value = v,
					       .file = w->file.index };

	if (!value.name)
		return uns_oom(err);
	return v ? uns_catalog_add_value(o->cat, &value, err) : 0;
}

static int take_values(struct opening *o, const struct world *w, struct uns_err *err)
{
	if (is_pipeline(w))
		UNS_TRY(take_of_stage(o, w, UNS_ZERO_STAGE_SHAPES, uns_value_get(w->model.root, "param_shapes"),
				      err));
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

/* Gradients are dealt out only where there is one stage. */
static int undeal(struct opening *o, struct stage *s, struct uns_err *err)
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
		UNS_TRY(take_of_stage(o, w, UNS_ZERO_STAGE_PADDINGS,
				      uns_value_get(w->zero.any->dict, "param_alignment_paddings"), err));
	UNS_TRY(uns_zero_states_add(s->zero, &s->slices, w->group_of, &o->names.masters, err));
	UNS_TRY(undeal(o, s, err));
	return add_optim_values(o, &w->zero, err);
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

/* A universal checkpoint holds parameters whole. */
static int whole_shapes(struct stage *s, struct uns_err *err)
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

/* n_ranks is only needed to find the sub-groups. */
static int add_universal(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct uns_zero_universal u = { .root = o->in->root,
					.path = o->in->universal_path,
					.name = o->in->universal_name };
	struct world *w = s->w[0];
	struct uns_zero_world *z = &w->zero;
	int64_t dp = count_of(w->model.root, "dp_world_size");
	UNS_CLEANUP(uns_map_fini) struct uns_map before = UNS_MAP_INIT;

	z->n_ranks = dp > 0 && dp < 1 << 16 ? (size_t)dp : 1;
	UNS_TRY(uns_zero_universal_open(z, &u, err));
	UNS_TRY(assign_groups(w, err));
	UNS_TRY(whole_shapes(s, err));
	UNS_TRY(copy_map(&o->names.masters, &before, err));
	UNS_TRY(uns_zero_universal_add(z, &u, w->group_of, &o->names.masters, err));
	/* After the states: a step may be a plain number in a file. */
	UNS_TRY(uns_zero_groups_add(z, w->group_of, &before, err));
	UNS_TRY(undeal(o, s, err));
	return add_optim_values(o, z, err);
}

static int list_modules(struct stage *s, struct uns_zero_modules *out, struct uns_err *err)
{
	const struct uns_zero_file **file =
		UNS_NEW_N(&s->scratch, const struct uns_zero_file *, s->slices.n_ranks);
	const struct uns_value **dict = UNS_NEW_N(&s->scratch, const struct uns_value *, s->slices.n_ranks);
	size_t k;

	if (!file || !dict)
		return uns_oom(err);
	for (k = 0; k < s->slices.n_ranks; k++) {
		file[k] = &s->w[k]->file;
		dict[k] = uns_value_get(s->w[k]->model.root, "module");
	}
	*out = (struct uns_zero_modules){ .slices = &s->slices, .file = file, .dict = dict };
	return 0;
}

static int add_uncut(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct uns_zero_modules modules;

	UNS_TRY(list_modules(s, &modules, err));
	return uns_zero_whole_add(o->cat, &modules, &o->names, err);
}

static int no_optimizer(struct opening *o, struct stage *s, size_t k, struct uns_err *err)
{
	struct world *w = s->w[k];
	const struct uns_value *whole = uns_value_get(w->model.root, "optimizer");
	char names[64];
	size_t n;

	if (uns_zero_dir_of(o->in->dir, UNS_ZERO_EXPERT, -1, &n) && whole && whole->kind == UNS_VALUE_DICT)
		return uns_catalog_add_finding(o->cat,
					       UNS_FINDING(.id = UNS_FOUND_ZERO_EXPERTS_UNNAMED,
							   .scope = UNS_SCOPE_OPTIMIZER, .file = w->zero.where),
					       err);
	if (whole && whole->kind == UNS_VALUE_DICT && is_pipeline(w))
		return uns_catalog_add_finding(o->cat,
					       UNS_FINDING(.id = UNS_FOUND_PIPELINE_STAGE_0,
							   .scope = UNS_SCOPE_OPTIMIZER, .file = w->zero.where),
					       err);
	if (whole && whole->kind == UNS_VALUE_DICT)
		return k ? 0 : add_uncut(o, s, err);
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

static int add_frozen(struct opening *o, struct stage *s, struct uns_err *err)
{
	const size_t n_ranks = s->slices.n_ranks;
	struct uns_zero_frozen *of = UNS_NEW_N(&s->scratch, struct uns_zero_frozen, n_ranks);
	size_t k;

	if (!of)
		return uns_oom(err);
	for (k = 0; k < n_ranks; k++) {
		struct world *w = s->w[k];

		if (!w->sliced)
			return 0;
		UNS_TRY(list_models(o, w, &of[k].file, &of[k].n, err));
		UNS_TRY(tell_missing_models(o, w, of[k].file, of[k].n, err));
		of[k].shapes = &w->model.frozen;
	}
	return uns_zero_frozen_add(o->cat, of, &s->slices, &o->names, err);
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

/* What the model files leave out. */
static int add_experts(struct opening *o, struct stage *s, struct uns_err *err)
{
	const struct world *w = s->w[0];

	if (!s->autoep.n)
		return uns_zero_expert_files_add(o->cat, o->in->dir, &w->model, &o->names, err);
	UNS_TRY(uns_zero_autoep_add_routers(o->cat, &s->autoep, uns_value_get(w->model.root, "module"), &o->names, err));
	if (w->sliced || o->in->universal_path)
		return uns_zero_autoep_add_rounded(o->cat, &s->autoep, &o->names, err);
	return uns_zero_autoep_files_add(o->cat, o->in->dir, &s->autoep, &o->names, err);
}

static int add_weights(struct opening *o, struct stage *s, struct uns_err *err)
{
	struct uns_err why = { .keep = &s->scratch };
	struct world *w = s->w[0];
	struct uns_zero_modules modules;
	size_t k, n_findings;

	UNS_TRY(add_frozen(o, s, err));
	UNS_TRY(list_modules(s, &modules, err));
	if (uns_zero_model_add(o->cat, &w->model, &modules, "", &o->names, &why) < 0) {
		uns_fail_in_file(&why, w->zero.where);
		return uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_WEIGHTS, &why, err);
	}
	n_findings = o->cat->n_findings;
	UNS_TRY(add_experts(o, s, err));
	s->broken |= o->cat->n_findings > n_findings;
	UNS_TRY(uns_zero_model_add_shared(o->cat, &w->model, &o->names, err));
	/* If the stage is broken, what is missing has been reported. */
	for (k = 0; k < s->slices.n_ranks && !s->broken; k++)
		UNS_TRY(uns_zero_model_check(o->cat, &s->w[k]->model, s->w[k]->zero.where, &o->names, err));
	return note_rounded(o, err);
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

	UNS_TRY(take_values(o, w, err));
	if (w->sliced && o->in->beside)
		UNS_TRY(uns_zero_gathered_add(o->cat, o->in->root, o->in->beside_path,
					      o->in->beside, &w->model, &o->names, err));
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
		return uns_zero_deal_check(&w->zero, &w->file, &o->names,
					   uns_value_get(w->model.root, "ds_config"), err);
	for (k = 0; k < s->slices.n_ranks; k++)
		if (!s->w[k]->n_optims)
			UNS_TRY(no_optimizer(o, s, k, err));
	return 0;
}

/* -- tensor parallelism -- */

/* 1 = its model file is open; 0 = there is none that can be read, and a finding says so. */
static int open_world(struct opening *o, struct stage *s, int32_t mp, struct world **out, struct uns_err *err)
{
	struct world *w = UNS_NEW(&s->scratch, struct world);

	if (!w)
		return uns_oom(err);
	*w = (struct world){ .file.fd = -1, .zero = { .cat = o->cat, .mp = mp } };
	*out = w;
	w->models = uns_zero_dir_of(o->in->dir, UNS_ZERO_MODEL, mp, &w->n_models);
	w->optims = uns_zero_dir_of(o->in->dir, UNS_ZERO_OPTIM, mp, &w->n_optims);
	/* A universal directory for all stages has both: the whole one goes first. */
	w->sliced = w->n_models && w->models[0].name.dp >= 0;
	return find_model(o, w, err);
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

/* Every trained parameter has a map. */
static int check_mapped(const struct stage *s, struct uns_err *err)
{
	const struct world *w = s->w[0];
	const struct uns_zero_cut_up *unused;
	size_t g, i;

	for (g = 0; g < w->model.n_shapes; g++)
		for (i = 0; i < w->model.shapes[g].n; i++)
			UNS_TRY(uns_zero_cut_get(&s->slices, w->model.shapes[g].v[i].name, w->zero.where,
						 w->zero.mp, &unused, err));
	return 0;
}

static int read_slices(struct opening *o, struct stage *s, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_slices_fini) struct uns_zero_slices other = { 0 };
	const size_t n = s->slices.n_ranks;
	size_t k;

	for (k = 0; n > 1 && k < n; k++) {
		struct world *w = s->w[k];
		struct uns_zero_slices *into = k ? &other : &s->slices;

		UNS_TRY(uns_zero_slices_read(uns_value_get(w->model.root, "universal_checkpoint_info"),
					     w->zero.where, n, k ? &s->scratch : &o->cat->arena, into, err));
		if (k)
			UNS_TRY(uns_zero_slices_compare(&s->slices, s->w[0]->zero.where, &other,
							w->zero.where, k, err));
		uns_zero_slices_fini(&other);
		other = (struct uns_zero_slices){ 0 };
	}
	return n > 1 ? check_mapped(s, err) : 0;
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
	return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_AUTOEP, .scope = UNS_SCOPE_ALL,
					      .file = found->zero.where, .arg = { { "cause", uns_str(cause) } }));
}

static int list_worlds(struct stage *s, struct world *found, int32_t mp, size_t n, struct uns_err *err)
{
	s->w = UNS_NEW_N(&s->scratch, struct world *, n);
	s->zero = UNS_NEW_N(&s->scratch, struct uns_zero_world *, n);
	if (!s->w || !s->zero) {
		world_fini(found);
		return uns_oom(err);
	}
	s->slices.n_ranks = n;
	s->w[(size_t)mp % n] = found;
	return 0;
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
	UNS_TRY(list_worlds(s, found, mp, (size_t)(n > 0 ? n : 1), err));
	*next = n > 1 ? (int32_t)n : n < 0 ? INT32_MAX : mp + 1;
	if (n < 0)
		return uns_catalog_add_finding(o->cat,
					       UNS_FINDING(.id = UNS_FOUND_ZERO_TENSOR_PARALLEL,
							   .scope = UNS_SCOPE_ALL,
							   .arg = { { "n", uns_num(o->in->dir->n_mp) } }),
					       err);
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

static int add_layer(struct opening *o, const struct uns_zero_entry *e, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	char prefix[16];

	snprintf(prefix, sizeof(prefix), "%d.", e->name.layer);
	UNS_TRY(uns_zero_file_open(o->cat, e->file, &o->cat->arena, &file, err));
	return uns_zero_model_add_file(o->cat, &file, prefix, &o->names, err);
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

/* Layers that tensor parallelism cut have a file of each slice. */
static int tell_slices(struct opening *o, const struct uns_zero_entry *e, size_t n, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (e[i].name.mp > 0)
			return uns_catalog_add_finding(
				o->cat,
				UNS_FINDING(.id = UNS_FOUND_ZERO_TENSOR_PARALLEL, .scope = UNS_SCOPE_ALL,
					    .arg = { { "n", uns_num(o->in->dir->n_mp) } }),
				err);
	return 0;
}

static int add_layers(struct opening *o, struct uns_err *err)
{
	const struct uns_zero_entry *e;
	struct uns_err why;
	size_t n;

	e = uns_zero_dir_of(o->in->dir, UNS_ZERO_LAYER, -1, &n);
	UNS_TRY(tell_slices(o, e, n, err));
	for (; n; n--, e++) {
		why = (struct uns_err){ .keep = &o->cat->arena };
		if (add_layer(o, e, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	return check_layers(o, err);
}

/* Experts of several model-parallel ranks are not put together. */
static int tell_experts(struct opening *o, struct uns_err *err)
{
	size_t n;
	const struct uns_zero_entry *e = uns_zero_dir_of(o->in->dir, UNS_ZERO_EXPERT, -1, &n);

	if (!n || o->in->dir->n_mp <= 1)
		return 0;
	return uns_catalog_add_finding(o->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_EXPERTS, .scope = UNS_SCOPE_ALL,
						   .file = e->path),
				       err);
}

int uns_zero_add(struct uns_catalog *cat, const struct uns_zero_input *in,
		 struct uns_zero_found *out, struct uns_err *err)
{
	UNS_CLEANUP(opening_fini) struct opening o = { .cat = cat, .in = in, .out = out };
	bool pipeline = false;
	int32_t next = 0;
	size_t i;

	*out = (struct uns_zero_found){ -1, UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN };
	UNS_TRY(tell_experts(&o, err));
	for (i = 0; i < in->dir->n_mp; i++)
		if (in->dir->mp[i] >= next)
			UNS_TRY(add_stage(&o, in->dir->mp[i], &next, &pipeline, err));
	if (pipeline)
		UNS_TRY(add_layers(&o, err));
	return uns_catalog_assign_groups(cat, err);
}
