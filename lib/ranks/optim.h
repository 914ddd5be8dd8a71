/* Optimizer states of FSDP1 with use_orig_params=True: what a rank saves of a parameter is a
 * stretch of its flattened elements, a plain tensor that records neither where it begins nor how long the parameter is.
 * Ranks in order form the parameter; whatever does not add up is refused. Private to ranks/files.c, which knows the
 * files; this part knows stretches. */
#ifndef UNS_RANKS_OPTIM_H
#define UNS_RANKS_OPTIM_H

#include "ranks/stretches.h"
#include "ranks/view.h"

void uns_rank_optim_init(struct uns_rank_optim *o, struct uns_catalog *cat, const struct uns_rank_params *params,
			 size_t n_files);
void uns_rank_optim_fini(struct uns_rank_optim *o);

/* State `state` of parameter number `id`, a plain tensor of one dimension, in that file.
 * Copies strings. Fails only when memory is out, or the tensor cannot be read. */
int uns_rank_optim_add(struct uns_rank_optim *o, const struct uns_rank_source *source, size_t id, const char *state,
		       enum uns_role role, const struct uns_value *v, struct uns_err *err);

/* Into the catalog as tensors made of ranges, or one problem with the reason. */
int uns_rank_optim_emit(struct uns_rank_optim *o, struct uns_err *err);

#endif
