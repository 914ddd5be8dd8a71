/* What DeepSpeed's engine saves besides tensors, for files in the engine's own form. The dict begins with the
 * engine's values from the checkpoint (the catalog's values of root "model_states", "client_state",
 * "optim_states"); if another framework saved the checkpoint, with the values that the engine requires. */
#ifndef UNS_ZERO_ENGINE_STATE_H
#define UNS_ZERO_ENGINE_STATE_H

#include "model/tree.h"
#include "files/torch_file.h"
#include "zero/names.h"

/* DeepSpeed's classes that may be written: loss scalers, the stage's number. */
extern const struct uns_pickle_class uns_engine_classes[];

/* A dict under construction, and the tensors in it. */
struct uns_engine_state {
	struct uns_value *dict;
	struct uns_torch_leaves leaves;
};

void uns_engine_state_fini(struct uns_engine_state *state);

/* Sets the fields of the catalog's summary that follow from what DeepSpeed's engine records (struct uns_summary:
 * has_engine_state, is_pipeline, is_autoep, ..). Call it before the catalog is sealed. */
void uns_engine_summary(struct uns_catalog *cat);

/* ds_version of the checkpoint; if another framework saved it, the version whose form unshard writes. */
const struct uns_value *uns_engine_version(const struct uns_catalog *cat, struct uns_arena *arena);

/* The model file's dict without tensors of the model, with room for `more_keys`: counters,
 * lr_scheduler, client state. Keys in `without` (ends with NULL) are left out; what
 * cannot be written is left out with a note in `out`. Lives in out->arena. */
int uns_engine_model_state(const struct uns_catalog *cat, int64_t global_steps, const char *const *without,
			   size_t more_keys, struct uns_vtree *out, struct uns_engine_state *state,
			   struct uns_err *err);

/* What the optimizer's shards hold besides tensors: the keys in `only`, or all where that is NULL,
 * but those in `without` (each ends with NULL, or is NULL). Likewise. */
int uns_engine_optim_state(const struct uns_catalog *cat, const char *const *only, const char *const *without,
			   size_t more_keys, struct uns_vtree *out, struct uns_value **dict, struct uns_err *err);

/* How many of the checkpoint's shards are of a kind. Files that merely lie beside it do not count. */
size_t uns_engine_count_files(const struct uns_catalog *cat, enum uns_zero_kind kind);

/* Whether a tensor of that name has a file of its own, as an expert. */
bool uns_engine_is_expert(const struct uns_catalog *cat, const char *tensor);

/* The name of a group of experts' parameters (UNS_ZERO_EXPERTS); NULL: the group is none of those. */
const char *uns_engine_experts(const struct uns_group *group);
/* If `name` is a parameter of experts that AutoEP shared out, of how many; else 0. */
uint64_t uns_engine_autoep(const struct uns_catalog *cat, const char *name);
/* Over how many ranks AutoEP spread the group's parameters; 1 = they are on every rank, as those of all groups without
 * experts are. */
size_t uns_engine_autoep_ranks(const struct uns_catalog *cat, const struct uns_group *group);

/* A group's hyper-parameters as a dict, with params = [params...]. NULL = out of memory. */
struct uns_value *uns_engine_group(struct uns_arena *arena, const struct uns_group *group, size_t first_param,
				   size_t n_params);

#endif
