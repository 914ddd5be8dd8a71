/* What the per-rank files' reader, the model's tensors and the optimizer's states pass to each other: which
 * files there are, and which of the model's tensors are parameters. */
#ifndef UNS_RANKS_PARAMS_H
#define UNS_RANKS_PARAMS_H

#include "model/box.h"

/* Catalog values with this root record the form of the files, for the view world-N, which writes such files:
 * "dtensor": a DTensor as the first file pickled it (absent if nothing is a DTensor); "state_dict": the model's
 * dict with its class and attributes, without entries; "lr_scheduler": the scheduler's state (ranks/extra.h). */
#define UNS_RANK_FORM "rank_files"

struct uns_rank_file {
	const char *path; /* below root */
	int32_t rank;
};

/* What a model's optimizer may number: its parameters in torch's order, which is that of the state dict, without
 * buffers and without the second names of tied weights. */
struct uns_rank_param {
	const char *name;
	struct uns_shape shape;
	bool twin; /* its bytes are an earlier one's: tied to it, perhaps, and then not counted */
};
/* Facts and options about FSDP1's flat units. */
struct uns_rank_unit_options {
	bool assume;        /* use torch's order of traversal, if exactly one set of wrapped modules fits */
	const char *map;    /* a unit map that was imported (ranks/units.h); NULL = none */
	bool stale;         /* a unit map was imported for other files than these: it is not used */
};

struct uns_rank_params {
	const struct uns_rank_param *v; /* in the catalog's arena */
	size_t n, n_twins;
	uint64_t mesh_size; /* ranks of the largest device mesh that a tensor records; 0 = none does
			     */
	size_t n_renamed;   /* files whose content names another rank than their name */
	struct uns_rank_unit_options units; /* for the caller to fill in */
};

#endif
