/* One rank's optimizer file of view world-N: the dict that DeepSpeed's optimizers save, whose flat tensors are
 * stretches of the catalog's tensors, with zeros where the layout has padding. Which stretches is the plan's; this
 * file knows the dict's keys. */
#include "zero/shard_file.h"

#include <string.h>

#include "base/cleanup.h"
#include "zero/autoep_values.h"
#include "zero/engine_state.h"
#include "wire/value_new.h"

/* -- what all ranks have -- */

static const struct uns_value *partition_count(const struct uns_zero_plan *plan,
					       struct uns_arena *arena)
{
	struct uns_value *list;
	size_t i;

	if (plan->sliced)
		return uns_value_new_int(arena, (int64_t)plan->world);
	list = uns_value_new_list(arena, plan->n_cuts); /* one for each group */
	for (i = 0; i < plan->n_cuts; i++)
		if (!uns_value_append(list, uns_value_new_int(arena, (int64_t)plan->cut[i].world)))
			return NULL;
	return list;
}

int uns_zero_shard_common(const struct uns_zero_plan *plan, struct uns_vtree *out,
			  const struct uns_value **common, struct uns_err *err)
{
	static const char *const without[] = { "partition_count", "group_paddings", "param_alignment_paddings",
					       "ds_zero_partition_groups", NULL };
	struct uns_value *dict;

	UNS_TRY(uns_engine_optim_state(plan->cat, NULL, without, 2, out, &dict, err));
	if (!uns_value_put_str(&out->arena, dict, "partition_count",
			       partition_count(plan, &out->arena)) ||
	    (plan->paddings && !uns_value_put_str(&out->arena, dict, "param_alignment_paddings", plan->paddings)))
		return uns_oom(err);
	*common = dict;
	return 0;
}

/* -- one rank's -- */

struct shard {
	const struct uns_zero_plan *plan;
	uint64_t rank;
	struct uns_arena arena; /* of what is needed until the file is laid out */
	struct uns_torch_leaves leaves;
};

static void shard_fini(struct shard *s)
{
	uns_torch_leaves_fini(&s->leaves);
	uns_arena_fini(&s->arena);
}

/* A flat tensor; state SIZE_MAX = the fp32 copies. */
static int flat(struct shard *s, const struct uns_zero_cut *cut, size_t state,
		const struct uns_value **out, struct uns_err *err)
{
	const struct uns_tensor *of = state == SIZE_MAX ? cut->v[0].fp32 : cut->v[0].state[state];
	struct uns_torch_leaf leaf = { .out = of->dtype };

	UNS_TRY(uns_zero_plan_parts(s->plan, cut, state, s->rank, &s->arena, &leaf, err));
	*out = uns_torch_leaf_add(&s->leaves, &s->arena, &leaf);
	return *out ? 0 : uns_oom(err);
}

/* A fused optimizer's step may be a plain number, which the catalog keeps with the group. */
static const struct uns_value *step_value(struct shard *s, const struct uns_zero_cut *cut)
{
	const struct uns_tensor *step = cut->v[0].step;

	return step ? uns_torch_tensor_add(&s->leaves, &s->arena, step)
		    : uns_value_get(s->plan->group[cut->group].hyper, "step");
}

static int state_of(struct shard *s, const struct uns_zero_cut *cut, struct uns_value **out,
		    struct uns_err *err)
{
	struct uns_value *dict = uns_value_new_dict(&s->arena, s->plan->n_states + 1);
	const struct uns_value *v = step_value(s, cut);
	size_t i;

	*out = dict;
	if (!dict || (v && !uns_value_put_str(&s->arena, dict, "step", v)))
		return uns_oom(err);
	for (i = 0; i < s->plan->n_states; i++) {
		UNS_TRY(flat(s, cut, i, &v, err));
		if (!uns_value_put_str(&s->arena, dict, s->plan->state[i], v))
			return uns_oom(err);
	}
	return 0;
}

static const struct uns_value *groups_of(struct shard *s)
{
	const struct uns_zero_plan *plan = s->plan;
	struct uns_value *list = uns_value_new_list(&s->arena, plan->n_groups);
	size_t g, first = 0, n;

	for (g = 0; g < plan->n_groups; g++) {
		for (n = 0; first + n < plan->n_cuts && plan->cut[first + n].group == g;)
			n++;
		if (!uns_value_append(list, uns_engine_group(&s->arena, &plan->group[g], first, n)))
			return NULL;
		first += n;
	}
	return list;
}

/* {state: {number: {step, exp_avg, ..}}, param_groups}, as torch's optimizers write it. */
static int base_state(struct shard *s, struct uns_value **out, struct uns_err *err)
{
	struct uns_value *states = uns_value_new_dict(&s->arena, s->plan->n_cuts), *state;
	size_t i;

	*out = uns_value_new_dict(&s->arena, 2);
	for (i = 0; i < s->plan->n_cuts; i++) {
		UNS_TRY(state_of(s, &s->plan->cut[i], &state, err));
		if (!uns_value_put(states, uns_value_new_int(&s->arena, (int64_t)i), state))
			return uns_oom(err);
	}
	if (!uns_value_put_str(&s->arena, *out, "state", states) ||
	    !uns_value_put_str(&s->arena, *out, "param_groups", groups_of(s)))
		return uns_oom(err);
	return 0;
}

static int masters(struct shard *s, struct uns_value **out, struct uns_err *err)
{
	const struct uns_value *v;
	size_t i;

	*out = uns_value_new_list(&s->arena, s->plan->n_cuts);
	for (i = 0; i < s->plan->n_cuts; i++) {
		UNS_TRY(flat(s, &s->plan->cut[i], SIZE_MAX, &v, err));
		if (!uns_value_append(*out, v))
			return uns_oom(err);
	}
	return *out ? 0 : uns_oom(err);
}

static const struct uns_value *paddings(struct shard *s)
{
	struct uns_value *list = uns_value_new_list(&s->arena, s->plan->n_cuts);
	uint64_t n;
	size_t i;

	for (i = 0; i < s->plan->n_cuts; i++) {
		n = uns_zero_plan_padding(s->plan, &s->plan->cut[i], s->rank);
		if (!uns_value_append(list, uns_value_new_int(&s->arena, (int64_t)n)))
			return NULL;
	}
	return list;
}

/* -- the file -- */

static int optimizer_dict(struct shard *s, const struct uns_value *common, struct uns_value **out,
			  struct uns_err *err)
{
	bool sliced = s->plan->sliced;
	struct uns_value *base, *fp32;

	*out = uns_value_new_dict_of(&s->arena, common, NULL, 4);
	UNS_TRY(base_state(s, &base, err));
	UNS_TRY(masters(s, &fp32, err));
	if (!uns_value_put_str(&s->arena, *out,
			       sliced ? "optimizer_state_dict" : "base_optimizer_state", base) ||
	    !uns_value_put_str(&s->arena, *out,
			       sliced ? "fp32_flat_groups" : "single_partition_of_fp32_groups",
			       fp32) ||
	    (!sliced && !uns_value_put_str(&s->arena, *out, "group_paddings", paddings(s))) ||
	    (sliced && s->plan->cat->summary.is_autoep &&
	     !uns_value_put_str(&s->arena, *out, "ds_zero_partition_groups",
				uns_zero_autoep_groups(s->plan, s->rank, &s->arena))))
		return uns_oom(err);
	return 0;
}

static int root_dict(struct shard *s, const struct uns_value *common, struct uns_value **out,
		     struct uns_err *err)
{
	const struct uns_value *config =
		uns_catalog_value(s->plan->cat, "model_states", "ds_config");
	struct uns_value *dict;

	UNS_TRY(optimizer_dict(s, common, &dict, err));
	*out = uns_value_new_dict(&s->arena, 3);
	if (!uns_value_put_str(&s->arena, *out, "optimizer_state_dict", dict) ||
	    (config && !uns_value_put_str(&s->arena, *out, "ds_config", config)) ||
	    !uns_value_put_str(&s->arena, *out, "ds_version",
			       uns_engine_version(s->plan->cat, &s->arena)))
		return uns_oom(err);
	return 0;
}

int uns_zero_shard_add(const struct uns_zero_plan *plan, const struct uns_value *common,
		       uint64_t rank, const char *path, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(shard_fini) struct shard s = { .plan = plan, .rank = rank };
	struct uns_torch_input in = { .cat = plan->cat,
				      .stem = "optim_states",
				      .leaves = &s.leaves,
				      .classes = uns_engine_classes };
	struct uns_value *root;

	UNS_TRY(root_dict(&s, common, &root, err));
	in.root = root;
	return uns_torch_file_add(&in, path,
				  "the checkpoint's optimizer, cut for another number of ranks", out,
				  err);
}
