/* Megatron-FSDP's checkpoints (--ckpt-format fsdp_dtensor): a DCP directory of DTensors, which ranks may hold unequal
 * parts of. Works on the metadata, but for a few small items.
 *
 *   model.module.NAME                                                a weight; fp32 if the training keeps such copies
 *   optimizer.state.module.module.module.NAME.exp_avg, .exp_avg_sq
 *   optimizer.param_to_group_meta.module.module.module.NAME.KEY      a value of the parameter's param group
 *   args, iteration, checkpoint_version, ...                         one object each
 *
 * Each wrapper of the model adds a "module.". Each layer and expert is a tensor of its own. NAME is torch_dist's, but
 * for experts; gate and up are two tensors, as torch_dist has them with singleton_local_shards, and one parameter:
 *
 *   mlp.linear_fc1.weight_w, mlp.linear_fc1.weight_v                 gate, up; KEYs are those of mlp.linear_fc1.weight
 *   mlp.experts.linear_fc1.weightE_w                                 expert E of TEGroupedMLP
 *   mlp.experts.local_experts.E.linear_fc1.weight_w                  of SequentialMLP
 *   mlp.experts.experts.E.linear_fc1.weight_w                        torch_dist's name of both
 *
 * Source: megatron-core 0.16.1, transformer/fsdp_dtensor_checkpoint.py, optimizer/distrib_optimizer.py
 * (sharded_param_state_fsdp_dtensor); Megatron-LM, training/checkpointing.py (preprocess_fsdp_dtensor_state_dict). */
#ifndef UNS_MEGATRON_FSDP_H
#define UNS_MEGATRON_FSDP_H

#include "dcp/metadata.h"

/* If the metadata is that of such a checkpoint: gives tensors and parameters torch_dist's names, in place, and the
 * catalog is_megatron. Entries and names are put into `arena`. */
int uns_megatron_fsdp_restore(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			      struct uns_err *err);

/* Adds what common.pt has elsewhere: the training's arguments and its iteration. Reads their items. What is wrong with
 * one becomes a finding about the optimizer. */
int uns_megatron_fsdp_common_read(struct uns_catalog *cat, struct uns_err *err);

#endif
