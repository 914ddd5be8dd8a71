/* The view world-N of a DeepSpeed checkpoint: which plans there are (one for each tensor-parallel rank, pipeline stage,
 * or share of the experts), whether they are possible, and which of the saved files are shown beside what they make.
 * zero/write/plan.c makes a plan, zero/write/tag_files.c its files. */
#include "zero/write/world_view.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/cover.h"
#include "parallel/autoep.h"
#include "zero/engine_state.h"
#include "zero/names.h"
#include "zero/write/tag_files.h"

/* -- stage 0: nothing is cut, and what was saved loads at any number of ranks -- */

static bool is_stage0(const struct uns_catalog *cat)
{
	const struct uns_value *config = uns_catalog_value(cat, "model_states", "ds_config");
	int64_t stage;

	return !uns_engine_count_files(cat, UNS_ZERO_OPTIM) &&
	       uns_value_int(uns_zero_setting(config, "stage"), &stage) && stage == 0;
}

static int supports_whole(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (cat->files[cat->companions[i].file].missing)
			return UNS_CATALOG_FAIL(cat, why, FILE_MISSING, .scope = UNS_SCOPE_ALL,
						.file = cat->files[cat->companions[i].file].path);
	for (i = 0; i < cat->n_findings; i++)
		if (cat->findings[i].scope != UNS_SCOPE_NOTE && cat->findings[i].code != -ENOTSUP)
			return uns_fail_with(why, &cat->findings[i]);
	return 0;
}

static int add_whole(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (cat->companions[i].shard)
			UNS_TRY(uns_vtree_add_file(out, cat, cat->companions[i].name, cat->companions[i].file, err));
	return 0;
}

/* -- plans -- */

/* One plan for each tensor-parallel rank, or for each share of the experts, or each stage of a pipeline: several of
 * these at once are not read. */
struct plans {
	struct uns_zero_slices slices;
	struct uns_zero_plan *v; /* n */
	size_t n;
	struct uns_zero_naming names;
};

static void plans_fini(struct plans *p)
{
	uns_zero_slices_fini(&p->slices);
}

/* Of a pipeline each has a model file. 1: it is none. */
static uint64_t pipeline_stages(const struct uns_catalog *cat)
{
	uint64_t n = cat->summary.is_pipeline ? uns_engine_count_files(cat, UNS_ZERO_MODEL) : 0;

	return n ? n : 1;
}

static uint64_t tensor_parallel_ranks(const struct uns_catalog *cat)
{
	const struct uns_value *dims = uns_catalog_value(cat, "model_states", "checkpoint_parallel_dimensions");
	uint64_t n;

	return uns_value_u64(uns_value_get(dims, "tp_degree"), &n) && n > 1 ? n : 1;
}

/* Tensor, pipeline and expert parallelism stay what they were: they belong to the model, and to the training's
 * settings. */
static int check_world(const struct uns_catalog *cat, uint64_t world, struct uns_err *err)
{
	uint64_t n_tp = tensor_parallel_ranks(cat), n_stages = pipeline_stages(cat), n;
	size_t n_ep = uns_engine_count_files(cat, UNS_ZERO_EXPERT_OPTIM); /* stage 0 has one for each of these ranks */

	if (!n_ep)
		UNS_TRY(uns_zero_plan_shares(cat, &n_ep, err));
	n = n_ep > 1 ? n_ep : n_stages > 1 ? n_stages : n_tp;
	if (world % n == 0)
		return 0;
	return UNS_CATALOG_FAIL(cat, err, ZERO_WORLD_UNEVEN, .scope = UNS_SCOPE_ALL, .expected = uns_num(n),
				.found = uns_num(world),
				.arg = { { "what", uns_str(n_ep > 1       ? "expert"
							   : n_stages > 1 ? "pipeline"
									  : "tensor") } });
}

/* How AutoEP cut the parameters of experts, or tensor parallelism all parameters. */
static int find_slices(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_zero_slices *out,
		       struct uns_err *err)
{
	const uint64_t n = tensor_parallel_ranks(cat);
	struct uns_zero_autoep autoep;
	const char *name;
	void *value;
	size_t at = 0, k;
	int code;

	*out = (struct uns_zero_slices){ .n_ranks = 1 };
	if (!cat->summary.is_autoep)
		return n == 1 ? 0
			      : uns_zero_slices_read(
					uns_catalog_value(cat, "model_states", "universal_checkpoint_info"), cat->path,
					(size_t)n, arena, out, err);
	code = uns_zero_autoep_read(uns_catalog_value(cat, "model_states", "ds_autoep_layers"), cat->path, arena,
				    &autoep, err);
	*out = autoep.slices;
	UNS_TRY(code);
	/* Of each layer all ranks have as many experts: model files list the parameters' shapes for all of them. */
	while (uns_map_next(&out->by_name, &at, &name, &value)) {
		const struct uns_zero_cut_up *cut = value;

		for (k = 1; k < out->n_ranks; k++)
			if (!uns_shape_equal(&cut->slice[k].shape, &cut->slice[0].shape))
				return UNS_CATALOG_FAIL(
					cat, err, ZERO_CUT_NOT_POSSIBLE, .scope = UNS_SCOPE_OPTIMIZER,
					.arg = { { "cause",
						   uns_str("AutoEP gave its ranks different numbers of experts") } });
	}
	return 0;
}

/* What files are made of goes into the arena. */
static int make_plans(const struct uns_catalog *cat, uint64_t world, struct uns_arena *arena, struct plans *out,
		      struct uns_err *err)
{
	enum { MAX_SLICES = 1 << 20 };
	size_t n, k, n_shares;

	if (cat->summary.family != UNS_FAMILY_ZERO)
		return UNS_CATALOG_FAIL(cat, err, NOT_ZERO, .scope = UNS_SCOPE_ALL);
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, err));
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, err));
	if (!cat->summary.has_engine_state)
		return UNS_CATALOG_FAIL(cat, err, NOT_ZERO, .scope = UNS_SCOPE_ALL);
	UNS_TRY(check_world(cat, world, err));
	UNS_TRY(find_slices(cat, arena, &out->slices, err));
	n = tensor_parallel_ranks(cat) * pipeline_stages(cat);
	UNS_TRY(uns_zero_naming_find(cat, n, arena, &out->names, err));
	UNS_TRY(uns_zero_plan_shares(cat, &n_shares, err));
	out->n = n * n_shares;
	UNS_TRY_ALLOC(out->v = UNS_NEW_N(arena, struct uns_zero_plan, out->n), err);
	for (k = 0; k < out->n; k++)
		UNS_TRY(uns_zero_plan_make(cat, &out->slices, k / n_shares, k % n_shares, world / n, arena, &out->v[k],
					   err));
	/* Stage 3 has a segment for each parameter and state on each rank. */
	if (!out->v[0].sliced || out->v[0].world * out->v[0].n_members <= MAX_SLICES)
		return 0;
	return UNS_CATALOG_FAIL(cat, err, TOO_MANY_SLICES, .scope = UNS_SCOPE_ALL,
				.arg = { { "n", uns_num(out->v[0].n_members) },
					 { "ranks", uns_num(out->v[0].world) },
					 { "most", uns_num(MAX_SLICES) } });
}

int uns_world_zero_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(plans_fini) struct plans plans = { 0 };

	if (is_stage0(cat)) {
		UNS_TRY(check_world(cat, world, why));
		return supports_whole(cat, why);
	}
	UNS_TRY(make_plans(cat, world, &arena, &plans, why));
	return uns_zero_files_check(&plans.v[0], why);
}

/* -- tree -- */

/* What any number of ranks has the same files of: experts, a pipeline's layers, and DeepSpeed's own beside the tag,
 * which name the tag or are its scripts. */
static int add_unchanged(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err)
{
	static const char *const marks[] = { "latest", "zero_to_fp32.py", "zero_to_torch.py" };
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;
	struct uns_zero_name name;
	size_t i;

	for (; c < end; c++)
		if (c->shard && uns_zero_name_parse(uns_path_name(c->name), &name) &&
		    (name.kind == UNS_ZERO_EXPERT || name.kind == UNS_ZERO_LAYER))
			UNS_TRY(uns_vtree_add_file(out, cat, c->name, c->file, err));
	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		c = uns_catalog_companion(cat, marks[i]);
		if (c)
			UNS_TRY(uns_vtree_add_file(out, cat, c->name, c->file, err));
	}
	return 0;
}

bool uns_world_zero_is_saved(const struct uns_catalog *cat, uint64_t world)
{
	uint64_t saved;

	return uns_value_u64(uns_catalog_value(cat, "model_states", "dp_world_size"), &saved) &&
	       saved * tensor_parallel_ranks(cat) * pipeline_stages(cat) == world;
}

int uns_world_zero_add(const struct uns_catalog *cat, uint64_t world, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(plans_fini) struct plans plans = { 0 };
	size_t k;

	if (is_stage0(cat))
		return add_whole(cat, out, err);
	/* Slices are tensors that only the plans know: layouts name them. */
	UNS_TRY(make_plans(cat, world,
			   tensor_parallel_ranks(cat) > 1 || cat->summary.is_autoep ? &out->arena : &scratch, &plans,
			   err));
	for (k = 0; k < plans.n; k++)
		UNS_TRY(uns_zero_files_add(&plans.v[k], &plans.names, out, err));
	UNS_TRY(add_unchanged(cat, out, err));
	if (!plans.v[0].reordered)
		return 0;
	return uns_vtree_note(out, err,
			      "with round_robin_gradients, the order of the parameters in the "
			      "optimizer's shards depends on the number of ranks: here it is that "
			      "of %llu ranks",
			      (unsigned long long)world);
}
