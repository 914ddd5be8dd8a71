/* Ranks' places into value trees (deepspeed 0.19.8: engine.py _save_moe_checkpoint, stage3.py _zero3_partition_group_metadata). */
#include "zero/autoep_values.h"

#include "parallel/experts.h"
#include "wire/value_new.h"
#include "zero/engine_state.h"

/* -- layers -- */

static int put_number(struct uns_arena *arena, struct uns_value *dict, const char *key, uint64_t n, struct uns_err *err)
{
	return uns_value_put_str(arena, dict, key, uns_value_new_int(arena, (int64_t)n)) ? 0 : uns_oom(err);
}

/* Of the rank: which share of the experts it has, and which it is of those that have the same. */
static void find_place(const struct uns_zero_plan *plan, uint64_t rank, uint64_t *share, uint64_t *place)
{
	const uint64_t n = plan->world / plan->n_shares;
	uint64_t first, stride;
	size_t e;

	*share = *place = 0;
	for (e = 0; e < plan->n_shares; e++) {
		uns_zero_experts_ranks(uns_catalog_value(plan->cat, "model_states", "ds_config"), plan->world, plan->n_shares, e,
				       &first, &stride);
		if (rank < first || (rank - first) % stride || (rank - first) / stride >= n)
			continue;
		*share = e;
		*place = (rank - first) / stride;
	}
}

static const struct uns_value *layer_value(const struct uns_zero_plan *plan, const struct uns_value *saved, uint64_t rank,
					   struct uns_arena *arena, struct uns_err *err)
{
	struct uns_value *layer = uns_value_new_dict_of(arena, saved, NULL, 6);
	uint64_t share, place, n = 0;

	find_place(plan, rank, &share, &place);
	uns_value_u64(uns_value_get(saved, "num_local_experts"), &n);
	if (!layer || put_number(arena, layer, "ep_rank", share, err) < 0 ||
	    put_number(arena, layer, "expert_data_parallel_rank", place, err) < 0 ||
	    put_number(arena, layer, "expert_data_parallel_world_size", plan->world / plan->n_shares, err) < 0 ||
	    put_number(arena, layer, "global_expert_start", share * n, err) < 0 ||
	    put_number(arena, layer, "global_expert_end", (share + 1) * n, err) < 0)
		return NULL;
	return layer;
}

int uns_zero_autoep_put_layers(const struct uns_zero_plan *plan, uint64_t rank, struct uns_arena *arena,
			       struct uns_value *dict, struct uns_err *err)
{
	const struct uns_value *saved = uns_catalog_value(plan->cat, "model_states", "ds_autoep_layers"),
			       *info = uns_catalog_value(plan->cat, "model_states", "universal_checkpoint_info");
	struct uns_value *list = uns_value_new_list(arena, uns_value_n_items(saved)), *told;
	size_t i;

	for (i = 0; uns_value_at(saved, i); i++)
		if (!uns_value_append(list, layer_value(plan, saved->item[i], rank, arena, err)))
			return uns_oom(err);
	if (!uns_value_put_str(arena, dict, "ds_autoep_layers", list))
		return uns_oom(err);
	if (!info || info->kind != UNS_VALUE_DICT)
		return 0;
	told = uns_value_new_dict_of(arena, info, "ds_autoep_layers", 1);
	return uns_value_put_str(arena, told, "ds_autoep_layers", list) &&
			       uns_value_put_str(arena, dict, "universal_checkpoint_info", told)
		       ? 0
		       : uns_oom(err);
}

/* -- groups -- */

/* [text] */
static const struct uns_value *one(struct uns_arena *arena, const char *text)
{
	struct uns_value *list = uns_value_new_list(arena, 1);

	return uns_value_append(list, uns_value_new_str(arena, text)) ? list : NULL;
}

static const struct uns_value *ranks_value(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut,
					   struct uns_arena *arena)
{
	const bool all = cut->world == plan->world;
	struct uns_value *list = uns_value_new_list(arena, cut->world);
	uint64_t i;

	for (i = 0; i < cut->world; i++)
		if (!uns_value_append(list, uns_value_new_int(arena, (int64_t)(all ? i : plan->first + i * plan->stride))))
			return NULL;
	return list;
}

static const struct uns_value *group_value(const struct uns_zero_plan *plan, size_t i, uint64_t rank,
					   struct uns_arena *arena)
{
	const struct uns_zero_cut *cut = &plan->cut[i];
	const char *experts = uns_engine_experts(&plan->group[cut->group]);
	const uint64_t place = cut->world == plan->world ? rank : (rank - plan->first) / plan->stride;
	struct uns_value *dict = uns_value_new_dict(arena, 6);

	return uns_value_put_str(arena, dict, "sub_group", uns_value_new_int(arena, (int64_t)i)) &&
			       uns_value_put_str(arena, dict, "partition_count", uns_value_new_int(arena, (int64_t)cut->world)) &&
			       uns_value_put_str(arena, dict, "partition_rank", uns_value_new_int(arena, (int64_t)place)) &&
			       uns_value_put_str(arena, dict, "partition_ranks", ranks_value(plan, cut, arena)) &&
			       uns_value_put_str(arena, dict, "families", one(arena, experts ? "autoep_expert" : "replicated")) &&
			       uns_value_put_str(arena, dict, "group_names", one(arena, experts ? experts : "replicated"))
		       ? dict
		       : NULL;
}

const struct uns_value *uns_zero_autoep_groups(const struct uns_zero_plan *plan, uint64_t rank, struct uns_arena *arena)
{
	struct uns_value *list = uns_value_new_list(arena, plan->n_cuts);
	size_t i;

	for (i = 0; i < plan->n_cuts; i++)
		if (!uns_value_append(list, group_value(plan, i, rank, arena)))
			return NULL;
	return list;
}
