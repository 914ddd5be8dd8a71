/* An optimizer's state dict out of a catalog: the value tree that torch.save would have been given,
 * {'state': {id: {...}}, 'param_groups': [{..., 'params': [id, ...]}]}, with its tensors in a table. */
#ifndef UNS_FILES_OPTIMIZER_STATE_H
#define UNS_FILES_OPTIMIZER_STATE_H

#include "files/torch_file.h"

enum uns_param_ids {
	UNS_IDS_NUMBERS, /* position over all groups' params: optimizer.pt of a plain Trainer */
	UNS_IDS_NAMES,   /* fully qualified names: optimizer.bin of FSDP FULL_STATE_DICT */
};

struct uns_optimizer_state {
	const struct uns_value *root;
	/* Parameters whose `step` was not saved and is taken from their group, or is global_step. */
	size_t n_steps_from_group, n_steps_assumed;
};

/* The first optimizer's root key ("optimizer"), or NULL when the catalog holds none. */
const char *uns_optimizer_root(const struct uns_catalog *cat);

/* 0 when the optimizer `root` can be written whole: groups are known, every state belongs to one of
 * their parameters, every tensor is covered. Else the sentence. */
int uns_optimizer_check(const struct uns_catalog *cat, const char *root, struct uns_err *why);

/* 0 when all states of its parameters are tensors, as Adam's are. Else the sentence (-ENOTSUP). */
int uns_optimizer_check_tensors(const struct uns_catalog *cat, const char *root, struct uns_err *why);

/* 0 when hyper-parameters were saved with every param group. Else the sentence (-ENOTSUP). */
int uns_optimizer_check_hyper(const struct uns_catalog *cat, struct uns_err *why);

/* global_step: for parameters that have moments but no step anywhere; UNS_UNKNOWN = refuse those.
 * Values live in the arena; tensors are added to `leaves`, behind those of the file that are there. */
int uns_optimizer_state_build(const struct uns_catalog *cat, const char *root,
			      enum uns_param_ids ids, int64_t global_step, struct uns_arena *arena,
			      struct uns_torch_leaves *leaves, struct uns_optimizer_state *out,
			      struct uns_err *err);

#endif
