/* The directory zero/ of a universal checkpoint: a directory of each parameter, a file of each state.
 *
 *   zero/NAME/fp32.pt, exp_avg.pt, ..    {"cat_dim": 0, "param": tensor} (stages 1, 2), or the bare
 *                                        tensor, flat (stage 3), now and then with padding behind it
 *   zero/NAME/step.pt                    a tensor of no dimensions, or a number
 *   zero/optimizer_state.pt              {param_groups, loss_scaler, ..; stage 3: optimizer_state_dict}
 *
 * Names without moments (frozen parameters, buffers, tied ones) hold the 16-bit weight as fp32; they are
 * not read: the model file has the original. Source: deepspeed 0.14 to 0.19,
 * checkpoint/ds_to_universal.py. */
#ifndef UNS_ZERO_READ_UNIVERSAL_H
#define UNS_ZERO_READ_UNIVERSAL_H

#include "zero/read/world.h"

struct uns_zero_universal {
	const struct uns_root *root;
	const char *path, *name; /* of zero/: below root, and below the checkpoint */
	uint32_t state_file;     /* optimizer_state.pt */
	const struct uns_value *state; /* in the catalog's arena; NULL = could not be read */
};

/* Read optimizer_state.pt. world->any is set then: groups can be assigned and added as for shards. */
int uns_zero_universal_open(struct uns_zero_world *w, struct uns_zero_universal *u, struct uns_err *err);

/* What uns_zero_states_add does for shards. */
int uns_zero_universal_add(struct uns_zero_world *w, const struct uns_zero_universal *u, const int32_t *group_of,
			   struct uns_map *seen, struct uns_err *err);

#endif
