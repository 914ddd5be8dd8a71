/* The files of a DeepSpeed universal checkpoint, in a form that its loaders of ZeRO stages 1, 2 and
 * 3 all read, whatever the checkpoint was saved with:
 *
 *   DIR/mp_rank_00_model_states.pt                 what the engine restores besides tensors
 *   DIR/zero_pp_rank_0_mp_rank_00_model_states.pt  the same, where stage 3 looks for it
 *   DIR/zero/optimizer_state.pt                    param groups, loss scaler
 *   DIR/zero/NAME/{fp32,exp_avg,exp_avg_sq}.pt     {cat_dim: 0, param: the whole tensor}
 *   DIR/zero/NAME/step.pt                          a number
 *
 * Of a directory that Lightning saved, the model files are meta.pt continued with the engine's keys:
 * a DeepSpeedStrategy takes what it has to restore besides tensors from there.
 * Stages 1 and 2 list NAME and take every *.pt in it for a state: there must be no others.
 * Source: deepspeed 0.14 to 0.19, checkpoint/universal_checkpoint.py, runtime/base_optimizer.py
 * (load_hp_checkpoint_state_from_checkpoint_dir), runtime/zero/stage3.py. */
#ifndef UNS_ZERO_UNIVERSAL_FILES_H
#define UNS_ZERO_UNIVERSAL_FILES_H

#include "model/tree.h"
#include "files/adam_params.h"

struct uns_universal_input {
	const struct uns_catalog *catalog;
	const struct uns_adam_params *params;
	const char *dir;
	const char *strip; /* left out in front of parameters' names; "" = nothing */
	int64_t global_step; /* for parameters without a step; UNS_UNKNOWN = refuse those */
};

/* -ENOTSUP when a parameter's name cannot be that of a directory. */
int uns_universal_check_names(const struct uns_adam_params *params, struct uns_err *err);

/* All of the above, and notes on what had to be left out or assumed. */
int uns_universal_add(const struct uns_universal_input *in, struct uns_vtree *out,
		      struct uns_err *err);

#endif
