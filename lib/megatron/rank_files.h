/* What Megatron-LM saves with --ckpt-format torch: a file of each model-parallel rank.
 *
 *   mp_rank_00/model_optim_rng.pt        tensor-parallel rank 0
 *   mp_rank_01_002/...                   rank 1 of stage 2 of a pipeline
 *   mp_rank_01_002_003/..., mp_rank_01_003/...   and expert-parallel rank 3, with a pipeline and without
 *   mp_rank_00/distrib_optim.pt          the distributed optimizer's states
 *
 *   {"args": Namespace, "checkpoint_version": 3.0, "iteration": N, "optimizer": ..,
 *    "model": {NAME: tensor}, or "model0", "model1", .. of virtual stages}
 *
 * Layers have their numbers in the stage, experts theirs on the rank. Parts of a tensor record neither which part they
 * are nor of what shape: the args have the numbers of ranks, rank_cuts.h the rest. Source: Megatron-LM,
 * training/checkpointing.py (get_checkpoint_name, generate_state_dict). */
#ifndef UNS_MEGATRON_RANK_FILES_H
#define UNS_MEGATRON_RANK_FILES_H

#include "model/catalog.h"

#define UNS_MEGATRON_RANK_FILE "model_optim_rng.pt"

/* Is this the name of a rank's directory? */
bool uns_megatron_is_rank_dir(const char *name);

/* mcore_adapter (LLaMA-Factory, ROLL) saves the same files with "model" alone. What the args would record is in its
 * configuration above them: tensor_model_parallel_size, ..; num_moe_experts, tie_embeddings_and_output_weights; and the
 * model's config.json as a text. Source: alibaba/ROLL, mcore_adapter/checkpointing.py, models/model_config.py. */
#define UNS_MEGATRON_MCA_CONFIG "mca_config.json"
struct uns_megatron_config_place {
	const struct uns_root *root;
	const char *path; /* NULL = there is none */
};

/* Adds weights under torch_dist's names, arguments and iteration; as companions the files. What is wrong with the files
 * becomes a finding, and then there are no weights. The optimizer is not read: a finding reports that. */
int uns_megatron_rank_files_add(struct uns_catalog *cat, const struct uns_directory *dir,
				const struct uns_megatron_config_place *config, struct uns_err *err);

#endif
