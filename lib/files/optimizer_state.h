/* An optimizer's state dict from a catalog: the value that would be passed to torch.save, {'state': {id: {...}},
 * 'param_groups': [{..., 'params': [id, ...]}]}, with its tensors in a table. */
#ifndef UNS_FILES_OPTIMIZER_STATE_H
#define UNS_FILES_OPTIMIZER_STATE_H

#include "files/torch_file.h"

enum uns_param_ids {
	UNS_IDS_NUMBERS, /* position over all groups' params: optimizer.pt of a plain Trainer */
	UNS_IDS_NAMES,   /* fully qualified names: optimizer.bin of FSDP FULL_STATE_DICT */
};

struct uns_optimizer_state {
	const struct uns_value *root;
	/* Parameters whose `step` was not saved: it is their group's step, or assumed to be global_step. */
	size_t n_steps_from_group, n_steps_assumed;
};

/* The first optimizer's key in the saved dict ("optimizer"), or NULL if the catalog has none. */
const char *uns_optimizer_root(const struct uns_catalog *cat);

/* Returns 0 if the optimizer `root` is complete: its groups are known, every state belongs to one of their parameters,
 * every tensor is covered. Otherwise fails with the reason. */
int uns_optimizer_check(const struct uns_catalog *cat, const char *root, struct uns_err *why);

/* Returns 0 if all states of its parameters are tensors, as Adam's are. Otherwise -ENOTSUP with the reason. */
int uns_optimizer_check_tensors(const struct uns_catalog *cat, const char *root, struct uns_err *why);

/* Returns 0 if the parameters of the optimizer `root` have names, which views with named states need. Otherwise
 * -ENOTSUP with the reason. root may be NULL. */
int uns_optimizer_check_names(const struct uns_catalog *cat, const char *root, struct uns_err *why);

/* Returns 0 if hyper-parameters were saved with every param group. Otherwise -ENOTSUP with the reason. */
int uns_optimizer_check_hyper(const struct uns_catalog *cat, struct uns_err *why);

/* global_step: the `step` of parameters that have moments and no saved step; UNS_UNKNOWN = refuse such parameters.
 * Values live in the arena; tensors are added behind those that `leaves` has. */
int uns_optimizer_state_build(const struct uns_catalog *cat, const char *root, enum uns_param_ids ids,
			      int64_t global_step, struct uns_arena *arena, struct uns_torch_leaves *leaves,
			      struct uns_optimizer_state *out, struct uns_err *err);

#endif
