/* A Megatron-Core checkpoint, however its optimizer was saved, as a directory that megatron-core loads at any
 * parallelism: the one that it saves with --dist-ckpt-optim-fully-reshardable.
 *
 *   metadata.json   common.pt (megatron/common_made.h)   .metadata   __0_0.distcp
 *
 *   NAME                          a weight
 *   optimizer.state.STATE.NAME    STATE is param (the fp32 copy), exp_avg, exp_avg_sq
 *   KEY/shard_...                 an object, as it was saved
 *
 * NAME is the one that it was saved under. Megatron-FSDP's (megatron/fsdp.h) are those of a torch_dist of single layers
 * and experts (content_metadata's singleton_local_shards).
 *
 * Source: megatron-core 0.16.1, optimizer/distrib_optimizer.py (sharded_param_state_fully_reshardable),
 * dist_checkpointing/strategies/torch.py. Pure. */
#ifndef UNS_MEGATRON_TORCH_DIST_H
#define UNS_MEGATRON_TORCH_DIST_H

#include "files/resume_reads.h"
#include "megatron/common_made.h"

/* Has the model experts, so that expert parallelism means something? */
bool uns_megatron_has_experts(const struct uns_catalog *cat);

/* Returns 0 if all tensors are there, and every one has a name. Otherwise fails with the reason. */
int uns_megatron_torch_dist_check(const struct uns_catalog *cat, enum uns_megatron_experts experts,
				  struct uns_err *why);

/* Adds the four files, and notes about what is not restored. */
int uns_megatron_torch_dist_add(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_vtree *out,
				struct uns_err *err);

/* The notes alone. */
int uns_megatron_torch_dist_notes(const struct uns_catalog *cat, struct uns_vtree *out, struct uns_err *err);

/* Which of what Megatron-LM reads when it resumes the directory has. O(tensors + values). */
struct uns_resume_megatron uns_megatron_saved(const struct uns_catalog *cat);

#endif
