/* Per-rank torch.save files into a catalog: plain tensors, DTensors and ShardedTensors, as
 * Accelerate's use_dcp=False and the veRL family write them; and whole-model .bin files, which are
 * the same with one rank. Wrappers are read by wire/dtensor.h. */
#ifndef UNS_RANKS_FILES_H
#define UNS_RANKS_FILES_H

#include "model/catalog.h"

/* Values of this root say in what form the files were, for who writes such files again: "dtensor",
 * one as the first file pickled it (none where nothing is a DTensor), "state_dict", the model's
 * dict with its class and attributes and without entries; "lr_scheduler", the scheduler's state
 * (rank_extra.h). */
#define UNS_RANK_FORM "rank_files"

struct uns_rank_file {
	const char *path; /* below root */
	int32_t rank;
};

/* Model state dicts {name: tensor}: role WEIGHT. Every file's data.pkl is read now. A tensor whose
 * dtype or global shape differs between ranks is a problem with scope WEIGHTS naming both. */
int uns_rank_files_add_model(struct uns_catalog *cat, const struct uns_root *root,
			     const struct uns_rank_file *files, size_t n, struct uns_err *err);

/* What a model's optimizer may number: its parameters in the order in which torch hands them out,
 * which is the state dict's without buffers and without the second names of tied weights. */
struct uns_rank_param {
	const char *name;
	struct uns_shape shape;
	bool twin; /* its bytes are an earlier one's: tied to it, perhaps, and then not counted */
};
/* What is known of FSDP1's flat units from elsewhere than the checkpoint. */
struct uns_rank_unit_options {
	bool assume;        /* torch's order of traversal, where one set of wrapped modules fits */
	const char *layout; /* kept from the training (ranks/units.h); NULL = none */
	bool stale;         /* there is one, for other files than these: it is not to be used */
};

struct uns_rank_params {
	const struct uns_rank_param *v; /* in the catalog's arena */
	size_t n, n_twins;
	uint64_t mesh_size; /* ranks of the largest device mesh that a tensor records; 0 = none does
			     */
	size_t n_renamed;   /* files whose content names another rank than their name */
	struct uns_rank_unit_options units; /* for the caller to fill in */
};

/* The same, and which of the tensors are parameters. */
int uns_rank_files_add_model_params(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n,
				    struct uns_rank_params *params, struct uns_err *err);

/* Optimizer state dicts {state: {name: {exp_avg: ..}}, param_groups: [..]} keyed by names. Integer
 * keys are a problem with scope OPTIMIZER (-ENOTSUP). */
int uns_rank_files_add_optimizer(struct uns_catalog *cat, const struct uns_root *root,
				 const struct uns_rank_file *files, size_t n, struct uns_err *err);

/* The same, where integer keys may stand for `params` (optimizer.state_dict() itself, as veRL saves
 * it): only with a single param group that numbers every parameter, and only where every shape
 * fits. What is named so is marked inferred. FSDP1's flat units are taken apart as params->units
 * says, and a problem with scope OPTIMIZER where it says nothing. */
int uns_rank_files_add_optimizer_of(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n,
				    const struct uns_rank_params *params, struct uns_err *err);

#endif
