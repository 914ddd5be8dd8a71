/* FSDP1's flat units (use_orig_params=False): the parameters of a wrapped module that are in no wrapped
 * module below it, flattened one after the other, padded at the end to a multiple of the number of ranks, and cut
 * into as many equal shares. No file records which modules were wrapped. The optimizer numbers the units: first the
 * outermost, then the others in the order in which torch visits the modules.
 *
 *   unit 0   [embed | norm | head | pad]      rank 0: first half, rank 1: second half
 *   unit 1   [layers.0.a | layers.0.b]        ...
 *
 * Source: torch/distributed/fsdp/_flat_param.py. Private to ranks/optim.c. */
#ifndef UNS_RANKS_UNITS_H
#define UNS_RANKS_UNITS_H

#include "base/arena.h"
#include "base/error.h"
#include "ranks/params.h"

/* Sizes in the optimizer's files. */
struct uns_rank_unit_sizes {
	const uint64_t *elems; /* of each unit on one rank; UNS_RANK_UNIT_FROZEN = it has no state */
	size_t n;
	size_t n_ranks;
};
#define UNS_RANK_UNIT_FROZEN UINT64_MAX

struct uns_rank_unit {
	const size_t *param; /* indices into the model's parameters, in the unit's order */
	size_t n;
};

struct uns_rank_units {
	const struct uns_rank_unit *v; /* as many as there are sizes */
	size_t shard_ranks; /* into how many shares a unit is cut: the number of ranks, with HSDP fewer */
};

/* The wrapped modules that torch's order of traversal and all sizes allow. Sizes do not distinguish parameters of equal
 * shape inside a unit: they get the model's order. Fails with -ENOTSUP if no set of modules fits, or more than one. */
int uns_rank_units_find(const struct uns_rank_params *params, const struct uns_rank_unit_sizes *sizes,
			struct uns_arena *arena, struct uns_rank_units *out, struct uns_err *why);

/* Reads the units from a unit map, a JSON text that was written in the training:
 *
 *   {"units": [{"name": "", "params": [{"name": "embed.weight", "shape": [13, 10]}, ...]}, ...]}
 *
 * in the optimizer's order. -EBADMSG: it does not fit the model's names and shapes or the sizes. */
int uns_rank_units_read(const char *map, const struct uns_rank_params *params, const struct uns_rank_unit_sizes *sizes,
			struct uns_arena *arena, struct uns_rank_units *out, struct uns_err *why);

/* Do n elements make a share of `elems` for each of `ranks`? */
bool uns_rank_unit_fits(uint64_t n, uint64_t elems, size_t ranks);

#endif
