/* How a ZeRO checkpoint would look had another number of data-parallel ranks saved it: which parameters
 * are cut together, in which order, and which elements each rank holds. The rules are zero/layout.h's. A plan is of
 * one tensor-parallel rank: its tensors are the slices that this rank holds. Or it is of one share of the experts, if
 * ranks share them (parallel/experts.h; slices again, if AutoEP shared them out), or of one stage of a pipeline. */
#ifndef UNS_ZERO_WRITE_PLAN_H
#define UNS_ZERO_WRITE_PLAN_H

#include "files/torch_file.h"
#include "zero/layout.h"
#include "parallel/slices.h"

struct uns_zero_member {
	const char *name;
	const struct uns_tensor *fp32;
	const struct uns_tensor **state; /* n_states, in the plan's order */
	const struct uns_tensor *step;   /* NULL: a plain number in the group's hyper-parameters */
	uint64_t at, elems;              /* in its cut */
};

/* What becomes one flat tensor on each rank. */
struct uns_zero_cut {
	size_t group;
	uint64_t world; /* of the ranks that it is cut for */
	struct uns_zero_member *v;
	size_t n;
	uint64_t end;  /* behind the last member; sliced: a rank's slices together */
	uint64_t part; /* elements on each rank, padding included */
};

struct uns_zero_plan {
	const struct uns_catalog *cat;
	const struct uns_zero_slices *slices;
	size_t slice; /* which of them the plan's ranks hold */
	size_t mp; /* the tensor-parallel rank, or the pipeline's stage */
	uint64_t world; /* of data-parallel ranks */
	size_t share,
		n_shares; /* which of the ranks' shares of experts the plan is of; n_shares 1: nothing is shared out */
	uint64_t first, stride; /* the ranks that have this share: first, first + stride, .. */
	bool sliced;
	bool pads_fp32; /* BF16_Optimizer: the fp32 partition keeps its padding */
	bool dealt; /* round_robin_gradients: members are in the order after the deal to `world` ranks */
	bool reordered; /* that order differs from the checkpoint's */
	const struct uns_value *paddings; /* param_alignment_paddings; NULL: not recorded */
	const struct uns_group *group; /* n_groups: of their parameters, those of the share */
	size_t n_groups;
	const char **state; /* of tensors that are cut: "exp_avg", "exp_avg_sq" */
	size_t n_states;
	struct uns_zero_cut *cut;
	size_t n_cuts, n_members;
};

/* How many shares of the experts the ranks have; 1 = none are shared out. -ENOTSUP: of several layers different
 * numbers. */
int uns_zero_plan_shares(const struct uns_catalog *cat, size_t *out, struct uns_err *err);

/* The catalog must be of ZeRO stage 1 to 3, saved by DeepSpeed. The plan is in the arena. Fails with -ENOTSUP if how
 * to cut the optimizer cannot be found, and with the optimizer's own problem if it has one. */
int uns_zero_plan_make(const struct uns_catalog *cat, const struct uns_zero_slices *slices, size_t mp, size_t share,
		       uint64_t world, struct uns_arena *arena, struct uns_zero_plan *out, struct uns_err *err);

/* What the plan's rank holds of a parameter, or of a state of one. NULL = out of memory. */
const struct uns_tensor *uns_zero_plan_held(const struct uns_zero_plan *plan, const struct uns_tensor *t,
					    struct uns_arena *arena);

/* What rank r holds of a cut, of state `s` or of the fp32 copies (s = SIZE_MAX), as a leaf in the arena; ask that
 * whether an allocation failed. */
struct uns_torch_leaf uns_zero_plan_leaf(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut, size_t s,
					 uint64_t rank, struct uns_arena *arena);

/* Padding at the end of rank r's part, as group_paddings has it. */
uint64_t uns_zero_plan_padding(const struct uns_zero_plan *plan, const struct uns_zero_cut *cut, uint64_t rank);

#endif
