/* What is kept of Megatron-Core's common.pt, beside param groups. */
#ifndef UNS_MEGATRON_COMMON_FILE_H
#define UNS_MEGATRON_COMMON_FILE_H

#define UNS_MEGATRON_COMMON "common.pt" /* the file, and the root of its values */

/* The option by which norms of queries and keys had weight decay: a value where it was on. */
#define UNS_MEGATRON_QK_DECAY "apply_wd_to_qk_layernorm"

/* The directory or Hub's name of the model that the training began from (slime's option): a value. */
#define UNS_MEGATRON_MODEL "hf_checkpoint"

/* How many steps the training had made: a value. */
#define UNS_MEGATRON_ITERATION "iteration"

/* The state of Megatron-LM's schedule of learning rates: a value, True, where it was saved. */
#define UNS_MEGATRON_SCHEDULE     "opt_param_scheduler"
#define UNS_MEGATRON_OLD_SCHEDULE "lr_scheduler"

/* A training with Lightning (NeMo 2): the version, a value. Its steps are counted in "global_step". */
#define UNS_MEGATRON_LIGHTNING       "pytorch-lightning_version"
#define UNS_MEGATRON_LIGHTNING_STEPS "global_step"

#endif
