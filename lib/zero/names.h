/* File names of DeepSpeed checkpoints. Names only: reads nothing.
 *
 *   mp_rank_00_model_states.pt                          one for all data-parallel ranks (stages 0-2)
 *   zero_pp_rank_3_mp_rank_00_model_states.pt           each data-parallel rank's (stage 3)
 *   [bf16_]zero_pp_rank_3_mp_rank_00_optim_states.pt    each data-parallel rank's
 *   layer_02-[model_00-]model_states.pt                 a pipeline's layer
 *   [layer_1_]expert_5_mp_rank_00_model_states.pt       an expert of a layer of experts
 *   expp_rank_1_mp_rank_00_optim_states.pt              stage 0: of the ranks that share experts, each one's optimizer
 *
 * What they call "pp" is the data-parallel rank. */
#ifndef UNS_ZERO_NAMES_H
#define UNS_ZERO_NAMES_H

#include "io/source.h"

enum uns_zero_kind { UNS_ZERO_MODEL, UNS_ZERO_OPTIM, UNS_ZERO_LAYER, UNS_ZERO_EXPERT, UNS_ZERO_EXPERT_OPTIM };

struct uns_zero_name {
	enum uns_zero_kind kind;
	int32_t dp;    /* data-parallel rank; -1 = one file for all of them */
	int32_t mp;    /* model-parallel rank: pipeline stage and tensor slice; of a layer, the slice */
	int32_t layer; /* of a LAYER; of an EXPERT, its layer among those that have experts; else -1 */
	int32_t expert; /* of an EXPERT its number, of an EXPERT_OPTIM its rank; else -1 */
};

/* false: no file of a DeepSpeed checkpoint. */
bool uns_zero_name_parse(const char *name, struct uns_zero_name *out);

/* How many files of the listing are of this kind. */
size_t uns_zero_count(const struct uns_listing *list, enum uns_zero_kind kind);

/* The name by which DeepSpeed saves a MODEL or OPTIM file of this model-parallel rank. dp -1: one for all
 * data-parallel ranks. NULL when memory is out. */
char *uns_zero_name_make(struct uns_arena *arena, enum uns_zero_kind kind, int64_t dp, unsigned mp);

/* The same file of another data-parallel rank; NULL when memory is out or `name` has no such rank. */
char *uns_zero_name_of_rank(struct uns_arena *arena, const char *name, int32_t dp);

#endif
