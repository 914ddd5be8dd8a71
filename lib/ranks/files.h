/* Per-rank torch.save files into a catalog: plain tensors, DTensors and ShardedTensors, as
 * Accelerate's use_dcp=False and the veRL family write them; and whole-model .bin files, which are
 * the same with one rank. Wrappers are read by wire/dtensor.h. */
#ifndef UNS_RANKS_FILES_H
#define UNS_RANKS_FILES_H

#include "model/catalog.h"
#include "ranks/params.h"

/* Model state dicts {name: tensor}: role WEIGHT. Every file's data.pkl is read now. A tensor whose
 * dtype or global shape differs between ranks is a problem with scope WEIGHTS naming both. */
int uns_rank_files_add_model(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files,
			     size_t n, struct uns_err *err);

/* The same for one file with the whole model. Its state dict is below these keys (the list ends with NULL). */
int uns_rank_files_add_model_below(struct uns_catalog *cat, const struct uns_root *root, const char *path,
				   const char *const *keys, struct uns_err *err);

/* Another state dict of that form beside the model's, below this key, which becomes its root: role OTHER. */
int uns_rank_files_add_beside(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *key,
			      struct uns_err *err);

/* The same, and which of the tensors are parameters. */
int uns_rank_files_add_model_params(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n, struct uns_rank_params *params,
				    struct uns_err *err);

/* Optimizer state dicts {state: {name: {exp_avg: ..}}, param_groups: [..]} keyed by names. Integer
 * keys are a problem with scope OPTIMIZER (-ENOTSUP). */
int uns_rank_files_add_optimizer(struct uns_catalog *cat, const struct uns_root *root,
				 const struct uns_rank_file *files, size_t n, struct uns_err *err);

/* The same of one file that was saved without sharding. Integer keys stay numbers (uns_group.numbered), unless the file
 * lists a name beside each number. Of a file with anything else than torch's own optimizers save, nothing is read. */
int uns_rank_files_add_numbered_optimizer(struct uns_catalog *cat, const struct uns_root *root, const char *path,
					  struct uns_err *err);

/* The same as uns_rank_files_add_optimizer, but integer keys may be numbers of `params` (optimizer.state_dict() itself,
 * as veRL saves it). That is accepted only if a single param group numbers every parameter and every shape fits; states
 * that are named in this way are marked inferred. FSDP1's flat units are taken apart by params->units; if that is
 * empty, they are a problem with scope OPTIMIZER. */
int uns_rank_files_add_optimizer_of(struct uns_catalog *cat, const struct uns_root *root,
				    const struct uns_rank_file *files, size_t n, const struct uns_rank_params *params,
				    struct uns_err *err);

#endif
