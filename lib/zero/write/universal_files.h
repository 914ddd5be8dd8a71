/* The files of a DeepSpeed universal checkpoint, in a form that its loaders of ZeRO stages 1, 2 and
 * 3 all read, whatever the checkpoint was saved with:
 *
 *   DIR/mp_rank_00_model_states.pt                 what the engine restores besides tensors
 *   DIR/zero_pp_rank_0_mp_rank_00_model_states.pt  the same, where stage 3 looks for it
 *   DIR/zero/optimizer_state.pt                    param groups, loss scaler
 *   DIR/zero/NAME/{fp32,exp_avg,exp_avg_sq}.pt     {cat_dim: 0, param: the whole tensor}
 *   DIR/zero/NAME/step.pt                          a number
 *
 * A tied parameter has a directory under each of its names, all with the same files: a model may come upon
 * another of them first. (ds_to_universal puts fp32.pt alone, out of the 16-bit weight, under those that
 * the optimizer does not know; with that, its moments would be lost.)
 * optimizer_state.pt holds the param groups twice: for stages 1 and 2, and in optimizer_state_dict for stage
 * 3, whose loader gives every group all that the first one holds. There, the first one has the values that are the same
 * in all groups, and its learning rate.
 * Of a directory that Lightning saved, the model files are meta.pt continued with the engine's keys:
 * a DeepSpeedStrategy takes what it has to restore besides tensors from there.
 * Stages 1 and 2 list NAME and take every *.pt in it for a state: there must be no others.
 * Source: deepspeed 0.14 to 0.19, checkpoint/universal_checkpoint.py, runtime/base_optimizer.py
 * (load_hp_checkpoint_state_from_checkpoint_dir), runtime/zero/stage3.py. */
#ifndef UNS_ZERO_WRITE_UNIVERSAL_FILES_H
#define UNS_ZERO_WRITE_UNIVERSAL_FILES_H

#include "base/text.h"
#include "model/tree.h"
#include "files/adam_params.h"

struct uns_universal_input {
	const struct uns_catalog *catalog;
	const struct uns_adam_params *params;
	const char *dir;
	const char *strip; /* left out in front of parameters' names; "" = nothing */
	int64_t global_step; /* known; of parameters without a step of their own too */
};

/* -ENOTSUP when a parameter's name cannot be that of a directory. */
int uns_universal_check_names(const struct uns_adam_params *params, struct uns_err *err);

/* The keys of hyper-parameters on which the param groups do not agree, with ", " between them; *lr: is "lr"
 * one of them? Only -ENOMEM. */
int uns_universal_differing(const struct uns_adam_params *params, struct uns_text *out, bool *lr, struct uns_err *err);

/* All of the above, and notes on what had to be left out or assumed. */
int uns_universal_add(const struct uns_universal_input *in, struct uns_vtree *out, struct uns_err *err);

#endif
