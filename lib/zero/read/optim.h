/* One *_optim_states.pt as read: what one data-parallel rank holds of an optimizer that ZeRO cut.
 *
 *   stages 1, 2  {optimizer_state_dict: {single_partition_of_fp32_groups: [tensor of a group],
 *                   base_optimizer_state: {state: {group: {step, exp_avg, ..}}, param_groups}, or,
 *                   under elastic_checkpoint, [{step, exp_avg, ..} of a group]
 *                   group_paddings, param_alignment_paddings, partition_count: [of a group], ..}}
 *   stage 3      {optimizer_state_dict: {fp32_flat_groups: [tensor of a sub-group],
 *                   optimizer_state_dict: {state: {sub-group: ..}, param_groups}, partition_count,
 *                   under AutoEP ds_zero_partition_groups: [{partition_count, ..} of a sub-group]}}
 *
 * Source: deepspeed 0.14 to 0.19, runtime/zero/stage_1_and_2.py, stage3.py, bf16_optimizer.py (which
 * writes no zero_stage). */
#ifndef UNS_ZERO_READ_OPTIM_H
#define UNS_ZERO_READ_OPTIM_H

#include "zero/file.h"

/* A flat tensor of one rank. */
struct uns_zero_part {
	bool there;
	uint32_t file; /* in the catalog */
	enum uns_dtype dtype;
	uint64_t offset_bytes, elems;
};

struct uns_zero_state {
	const char *name;
	bool scalar; /* one value for the whole group: `step` */
	struct uns_zero_part part;
	uint8_t value[16]; /* of a scalar, its bytes */
};

struct uns_zero_rank_group {
	struct uns_zero_part fp32;
	struct uns_zero_state *state;
	size_t n_states;
	const struct uns_value *step; /* a plain number, where it is no tensor; else NULL */
	uint64_t partitions; /* ranks that the group is cut for; 0 = as the optimizer */
	bool has_padding;
	uint64_t padding; /* elements at the end of this rank's part that are none of any parameter */
};

struct uns_zero_optim {
	int stage;           /* 3; 1 is also that of stage 2 and of BF16_Optimizer */
	uint64_t partitions; /* the most ranks that a group is cut for; 0 = not recorded */
	struct uns_zero_rank_group *group;
	size_t n_groups;
	const char *version;                /* ds_version; NULL: not recorded */
	const struct uns_value *dict;       /* optimizer_state_dict */
	const struct uns_value *param_groups; /* NULL: not saved (elastic_checkpoint) */
};

/* Everything lives in the arena. */
int uns_zero_optim_parse(const struct uns_zero_file *file, struct uns_arena *arena, struct uns_zero_optim *out,
			 struct uns_err *err);

#endif
