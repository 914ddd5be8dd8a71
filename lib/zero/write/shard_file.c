/* One rank's optimizer file of view world-N: the dict that DeepSpeed's optimizers save, whose flat tensors are
 * stretches of the catalog's tensors, with zeros where the layout has padding. Which stretches is the plan's; this
 * file knows the dict's keys. */
#include "zero/write/shard_file.h"

#include <string.h>

#include "base/cleanup.h"
#include "zero/write/autoep_values.h"
#include "zero/engine_state.h"
#include "wire/value_new.h"

/* -- what all ranks have -- */

int uns_zero_shard_common(const struct uns_zero_plan *plan, struct uns_vtree *out, const struct uns_value **common,
			  struct uns_err *err)
{
	static const char *const without[] = { "partition_count", "group_paddings", "param_alignment_paddings",
					       "ds_zero_partition_groups", NULL };
	struct uns_arena *arena = &out->arena;
	struct uns_value *dict, *count;
	size_t i;

	UNS_TRY(uns_engine_optim_state(plan->cat, NULL, without, 2, out, &dict, err));
	count = plan->sliced ? uns_value_new_int(arena, (int64_t)plan->world) : uns_value_new_list(arena, plan->n_cuts);
	for (i = 0; !plan->sliced && i < plan->n_cuts; i++) /* one for each group */
		uns_value_append(count, uns_value_new_int(arena, (int64_t)plan->cut[i].world));
	uns_value_put_str(arena, dict, "partition_count", count);
	if (plan->paddings)
		uns_value_put_str(arena, dict, "param_alignment_paddings", plan->paddings);
	*common = dict;
	return uns_arena_check(arena, err);
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
static const struct uns_value *flat_tensor(struct shard *s, const struct uns_zero_cut *cut, size_t state)
{
	const struct uns_torch_leaf leaf = uns_zero_plan_leaf(s->plan, cut, state, s->rank, &s->arena);

	return uns_torch_leaf_add(&s->leaves, &s->arena, &leaf);
}

/* {state: {number: {step, exp_avg, ..}}, param_groups}, as torch's optimizers write it. The numbers are those of the
 * cuts, which follow each other in a group. */
static const struct uns_value *base_state(struct shard *s)
{
	const struct uns_zero_plan *plan = s->plan;
	struct uns_arena *arena = &s->arena;
	struct uns_value *base = uns_value_new_dict(arena, 2), *states = uns_value_new_dict(arena, plan->n_cuts);
	struct uns_value *groups = uns_value_new_list(arena, plan->n_groups), *state;
	const struct uns_value *v;
	size_t i, k, g, n;

	for (i = 0; i < plan->n_cuts; i++) {
		const struct uns_zero_cut *cut = &plan->cut[i];
		const struct uns_tensor *step = cut->v[0].step;

		state = uns_value_new_dict(arena, plan->n_states + 1);
		/* A fused optimizer's step may be a plain number, which the catalog keeps with the group. */
		v = step ? uns_torch_tensor_add(&s->leaves, arena, step)
			 : uns_value_get(plan->group[cut->group].hyper, "step");
		if (v)
			uns_value_put_str(arena, state, "step", v);
		for (k = 0; k < plan->n_states; k++)
			uns_value_put_str(arena, state, plan->state[k], flat_tensor(s, cut, k));
		uns_value_put(states, uns_value_new_int(arena, (int64_t)i), state);
	}
	for (g = i = 0; g < plan->n_groups; g++, i += n) {
		for (n = 0; i + n < plan->n_cuts && plan->cut[i + n].group == g;)
			n++;
		uns_value_append(groups, uns_engine_group(arena, &plan->group[g], i, n));
	}
	uns_value_put_str(arena, base, "state", states);
	uns_value_put_str(arena, base, "param_groups", groups);
	return base;
}

/* -- the file -- */

static const struct uns_value *root_dict(struct shard *s, const struct uns_value *common)
{
	const struct uns_zero_plan *plan = s->plan;
	const struct uns_value *config = uns_catalog_value(plan->cat, "model_states", "ds_config");
	const bool sliced = plan->sliced;
	struct uns_arena *arena = &s->arena;
	struct uns_value *root = uns_value_new_dict(arena, 3), *dict = uns_value_new_dict_of(arena, common, NULL, 4);
	struct uns_value *masters = uns_value_new_list(arena, plan->n_cuts);
	struct uns_value *paddings = uns_value_new_list(arena, plan->n_cuts);
	uint64_t padding;
	size_t i;

	for (i = 0; i < plan->n_cuts; i++) {
		uns_value_append(masters, flat_tensor(s, &plan->cut[i], SIZE_MAX));
		padding = uns_zero_plan_padding(plan, &plan->cut[i], s->rank);
		uns_value_append(paddings, uns_value_new_int(arena, (int64_t)padding));
	}
	uns_value_put_str(arena, dict, sliced ? "optimizer_state_dict" : "base_optimizer_state", base_state(s));
	uns_value_put_str(arena, dict, sliced ? "fp32_flat_groups" : "single_partition_of_fp32_groups", masters);
	if (!sliced)
		uns_value_put_str(arena, dict, "group_paddings", paddings);
	else if (plan->cat->summary.is_autoep)
		uns_value_put_str(arena, dict, "ds_zero_partition_groups",
				  uns_zero_autoep_groups(plan, s->rank, arena));
	uns_value_put_str(arena, root, "optimizer_state_dict", dict);
	if (config)
		uns_value_put_str(arena, root, "ds_config", config);
	uns_value_put_str(arena, root, "ds_version", uns_engine_version(plan->cat, arena));
	return root;
}

int uns_zero_shard_add(const struct uns_zero_plan *plan, const struct uns_value *common, uint64_t rank,
		       const char *path, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(shard_fini) struct shard s = { .plan = plan, .rank = rank };
	const struct uns_torch_input in = { .cat = plan->cat,
					    .root = root_dict(&s, common),
					    .stem = "optim_states",
					    .leaves = &s.leaves,
					    .classes = uns_engine_classes };

	UNS_TRY(uns_arena_check(&s.arena, err));
	return uns_torch_file_add(&in, path, "the checkpoint's optimizer, cut for another number of ranks", out, err);
}
