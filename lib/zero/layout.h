/* How ZeRO lays an optimizer out over data-parallel ranks: which elements of which parameter each rank holds. Reader
 * and writers both use this file. Pure arithmetic; all lengths and offsets are in elements, `world` is the number of
 * data-parallel ranks and never 0.
 *
 *   flat (stages 1, 2)   The parameters of a group follow each other. The group is padded at its end to a multiple
 *                        of 2 * world and cut into `world` parts of equal length, one for each rank. A parameter
 *                        may be spread over several ranks, and a part may begin anywhere in a parameter.
 *
 *                            group   [ a a a a a | b b b | c c c c | pad ]
 *                            world 2 [ rank 0: a a a a a b b ][ rank 1: b c c c c . . ]
 *
 *   sliced (stage 3)     Each parameter by itself is padded to a multiple of `world` and cut into slices of
 *                        ceil(elements / world). The slices of a rank follow each other. They are kept in
 *                        sub-groups: a sub-group ends with the parameter with which it reaches sub_group_size elements
 *                        of a rank, and with the last parameter of the param group.
 *
 *   dealt                With round_robin_gradients (stages 1, 2) a group's parameters are dealt out to the ranks
 *                        like cards, 0 W 2W .. 1 W+1 .., before they are put in a row.
 *
 * Source: deepspeed 0.14 to 0.19, runtime/zero/stage_1_and_2.py (__init__: align of 2 * world; _round_robin_reorder),
 * stage3.py (_create_fp16_sub_groups), partition_parameters.py (slices), bf16_optimizer.py. */
#ifndef UNS_ZERO_LAYOUT_H
#define UNS_ZERO_LAYOUT_H

#include "wire/value.h"

/* -- from the configuration. config: the model file's "ds_config", may be NULL -- */

/* zero_optimization.NAME, or NULL. */
const struct uns_value *uns_zero_setting(const struct uns_value *config, const char *name);
bool uns_zero_is_round_robin(const struct uns_value *config);
/* And does DeepSpeed of this version ("0.19.8", NULL = not known) do what the configuration asks for? Stage 1 does
 * since 0.13.0 (its pull request 4887), stage 3 never. */
bool uns_zero_obeys_round_robin(const struct uns_value *config, const char *version);
/* DeepSpeed's default where it is not set. */
uint64_t uns_zero_sub_group_size(const struct uns_value *config);

/* -- order -- */

/* Sets order[k] to the number that the k-th parameter after the deal had before it. */
void uns_zero_deal(size_t n, uint64_t world, size_t *order);

/* -- where -- */

struct uns_zero_layout {
	bool sliced;
	uint64_t world;
	uint64_t part_elems; /* flat: of each rank's part, padding included */
};

/* Elements of each slice of a parameter. */
static inline uint64_t uns_zero_slice(uint64_t elems, uint64_t world)
{
	return elems / world + (elems % world != 0);
}

/* Elements of each rank's part of a flat group that ends at `end`. */
static inline uint64_t uns_zero_part(uint64_t end, uint64_t world)
{
	return 2 * uns_zero_slice(end, 2 * world);
}

/* What a parameter advances its group by: its elements, or those of one slice. */
static inline uint64_t uns_zero_advance(const struct uns_zero_layout *layout, uint64_t elems)
{
	return layout->sliced ? uns_zero_slice(elems, layout->world) : elems;
}

/* A sub-group whose slices have `elems` elements on each rank takes no further parameter. */
static inline bool uns_zero_sub_group_is_full(uint64_t elems, uint64_t sub_group_size)
{
	return elems >= sub_group_size;
}

/* A stretch of a parameter that one rank holds. */
struct uns_zero_stretch {
	uint64_t rank;
	uint64_t first, count; /* elements of the parameter */
	uint64_t local;        /* where it starts in the rank's part */
};

/* Of the parameter of `elems` elements that starts at `at` in its group: the stretch of the first rank
 * >= out->rank that holds any. Call with out->rank = 0, then out->rank + 1, ... false: none left. */
bool uns_zero_stretch_next(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems,
			   struct uns_zero_stretch *out);
/* The stretch of that one rank. false: it holds none of the parameter. */
bool uns_zero_stretch_of(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems, uint64_t rank,
			 struct uns_zero_stretch *out);

/* Elements that a rank holds of a group that ends at `end`, without the padding at the group's end. */
uint64_t uns_zero_held(const struct uns_zero_layout *layout, uint64_t end, uint64_t rank);

/* -- recorded padding -- */

/* What group_paddings has for a rank of a flat group: the padding in its part, or, as BF16_Optimizer records it, all
 * of the group's with the last rank. */
uint64_t uns_zero_padding(const struct uns_zero_layout *layout, uint64_t end, uint64_t rank, bool all_with_last);

/* Elements of padding behind parameter `i` of group `g`: setting parameter_alignment. paddings: the optimizer's
 * "param_alignment_paddings"; NULL and None = there is none. false: it holds no count for the parameter. */
bool uns_zero_alignment(const struct uns_value *paddings, size_t g, size_t i, uint64_t *out);

#endif
