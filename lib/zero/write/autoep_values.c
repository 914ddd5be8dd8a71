/* Computes a rank's place among those that share experts, as DeepSpeed's files record it (deepspeed 0.19.8: engine.py
 * _save_moe_checkpoint, stage3.py _zero3_partition_group_metadata). */
#include "zero/write/autoep_values.h"

#include "parallel/experts.h"
#include "wire/value_new.h"
#include "zero/engine_state.h"

/* -- layers -- */

static void put_number(struct uns_arena *arena, struct uns_value *dict, const char *key, uint64_t n)
{
	uns_value_put_str(arena, dict, key, uns_value_new_int(arena, (int64_t)n));
}

/* Of the rank: which share of the experts it has, and which it is of those that have the same. */
static void find_place(const struct uns_zero_plan *plan, uint64_t rank, uint64_t *share, uint64_t *place)
{
	const uint64_t n = plan->world / plan->n_shares;
	uint64_t first, stride;
	size_t e;

	*share = *place = 0;
	for (e = 0; e < plan->n_shares; e++) {
		uns_zero_experts_ranks(uns_catalog_value(plan->cat, "model_states", "ds_config"), plan->world,
				       plan->n_shares, e, &first, &stride);
		if (rank < first || (rank - first) % stride || (rank - first) / stride >= n)
			continue;
		*share = e;
		*place = (rank - first) / stride;
	}
}

void uns_zero_autoep_put_layers(const struct uns_zero_plan *plan, uint64_t rank, struct uns_arena *arena,
				struct uns_value *dict)
{
	const struct uns_value *saved = uns_catalog_value(plan->cat, "model_states", "ds_autoep_layers"),
			       *info = uns_catalog_value(plan->cat, "model_states", "universal_checkpoint_info");
	struct uns_value *list = uns_value_new_list(arena, uns_value_n_items(saved)), *layer;
	uint64_t share, place, n;
	size_t i;

	find_place(plan, rank, &share, &place);
	for (i = 0; uns_value_at(saved, i); i++) {
		n = 0;
		uns_value_u64(uns_value_get(saved->item[i], "num_local_experts"), &n);
		layer = uns_value_new_dict_of(arena, saved->item[i], NULL, 6);
		put_number(arena, layer, "ep_rank", share);
		put_number(arena, layer, "expert_data_parallel_rank", place);
		put_number(arena, layer, "expert_data_parallel_world_size", plan->world / plan->n_shares);
		put_number(arena, layer, "global_expert_start", share * n);
		put_number(arena, layer, "global_expert_end", (share + 1) * n);
		uns_value_append(list, layer);
	}
	uns_value_put_str(arena, dict, "ds_autoep_layers", list);
	if (!info || info->kind != UNS_VALUE_DICT)
		return;
	layer = uns_value_new_dict_of(arena, info, "ds_autoep_layers", 1);
	uns_value_put_str(arena, layer, "ds_autoep_layers", list);
	uns_value_put_str(arena, dict, "universal_checkpoint_info", layer);
}

/* -- groups -- */

static const struct uns_value *list_of_text(struct uns_arena *arena, const char *text)
{
	struct uns_value *list = uns_value_new_list(arena, 1);

	uns_value_append(list, uns_value_new_str(arena, text));
	return list;
}

static const struct uns_value *group_value(const struct uns_zero_plan *plan, size_t i, uint64_t rank,
					   struct uns_arena *arena)
{
	const struct uns_zero_cut *cut = &plan->cut[i];
	const char *experts = uns_engine_experts(&plan->group[cut->group]);
	const bool all = cut->world == plan->world;
	struct uns_value *dict = uns_value_new_dict(arena, 6), *ranks = uns_value_new_list(arena, cut->world);
	uint64_t r;

	for (r = 0; r < cut->world; r++)
		uns_value_append(ranks, uns_value_new_int(arena, (int64_t)(all ? r : plan->first + r * plan->stride)));
	put_number(arena, dict, "sub_group", i);
	put_number(arena, dict, "partition_count", cut->world);
	put_number(arena, dict, "partition_rank", all ? rank : (rank - plan->first) / plan->stride);
	uns_value_put_str(arena, dict, "partition_ranks", ranks);
	uns_value_put_str(arena, dict, "families", list_of_text(arena, experts ? "autoep_expert" : "replicated"));
	uns_value_put_str(arena, dict, "group_names", list_of_text(arena, experts ? experts : "replicated"));
	return dict;
}

const struct uns_value *uns_zero_autoep_groups(const struct uns_zero_plan *plan, uint64_t rank, struct uns_arena *arena)
{
	struct uns_value *list = uns_value_new_list(arena, plan->n_cuts);
	size_t i;

	for (i = 0; i < plan->n_cuts; i++)
		uns_value_append(list, group_value(plan, i, rank, arena));
	return list;
}
