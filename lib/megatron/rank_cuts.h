/* How tensor parallelism cuts Megatron-Core's parameters, where files hold each rank's part and do not record it. Pure.
 * Source: megatron-core 0.16.1, the sharded_state_dict of each module (tensor_parallel/layers.py, transformer/mlp.py,
 * attention.py, moe/). */
#ifndef UNS_MEGATRON_RANK_CUTS_H
#define UNS_MEGATRON_RANK_CUTS_H

#include "model/box.h"

struct uns_megatron_cut {
	int dim; /* that the ranks' parts follow each other in; -1 = each rank has all of it */
	bool by_projection; /* the rows may be gate above up, each of them cut */
};

/* Of a parameter by the end of its name; -ENOTSUP: no rule is known. */
int uns_megatron_cut_of(const char *name, struct uns_megatron_cut *out, struct uns_err *err);

#endif
