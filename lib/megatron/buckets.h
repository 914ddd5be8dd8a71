/* The names of what Megatron-Core's distributed optimizer saves in buckets (distrib_optim_sharding_type dp_reshardable,
 * its default since 0.15), which records none.
 *
 *   [chained_C.]optimizer.distributed.dp_group_idx_G.gbuf_idx_V.dtype_(torch.bfloat16,
 * torch.float32).bucket_idx_K.STATE
 *
 *   C  0 the optimizer of all parameters, 1 that of experts, if several ranks share these
 *   G  which ranks' parameters: tensor parallel rank + tensor parallel ranks * pipeline rank; of experts
 *      rank of expert tensor parallelism + its ranks * (expert parallel rank + its ranks * pipeline rank)
 *   V  which chunk of the model the pipeline rank holds: one, or several if it is interleaved
 *   K  buckets follow each other
 *
 * A bucket has parameters in the reverse of the order in which the model registers them, each from a multiple of 64
 * elements on; what is between is never set. Each data-parallel rank has an equal share of the bucket, and saves a
 * chunk for each parameter or part of one in it. STATE is param (the fp32 copy), exp_avg, exp_avg_sq.
 *
 * That is a rule, and no proof: the fp32 copies must be compared with the weights before such states are shown
 * (facts/masters_proof.h). Works on the metadata; reads no files.
 *
 * Source: megatron-core 0.16.1, distributed/param_and_grad_buffer.py, distributed_data_parallel.py,
 * optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable), optimizer/__init__.py. */
#ifndef UNS_MEGATRON_BUCKETS_H
#define UNS_MEGATRON_BUCKETS_H

#include "dcp/metadata.h"

/* Replaces buckets by states of parameters, as --dist-ckpt-optim-fully-reshardable names them. Chunks are put into
 * `arena`, parts of items into the catalog's. A catalog with such states is named_by_rule. If any parameter does not
 * fit, the buckets stay as they are, and a finding has the first one's name. */
int uns_megatron_buckets_name(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			      struct uns_err *err);

#endif
