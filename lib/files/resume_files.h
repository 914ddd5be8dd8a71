/* The files beside weights and optimizer in a directory that a trainer resumes from: scheduler, scaler, random states,
 * custom objects, trainer_state.json, config and others. */
#ifndef UNS_FILES_RESUME_FILES_H
#define UNS_FILES_RESUME_FILES_H

#include "files/empty_group.h"
#include "model/training.h"
#include "model/tree.h"

struct uns_resume_input {
	const struct uns_catalog *catalog;
	const struct uns_companion *borrowed;
	size_t n_borrowed;
	const struct uns_training *training; /* NULL = nothing is known */
	bool trainer_state_valid;            /* the checkpoint's own file is shown unchanged */
	bool one_process; /* random states: rank 0's under the single-process name, no others */
	bool hide_rng;
	bool plain; /* saved without sharding: its own weights, optimizer and random states stay */
	bool weights_made; /* the same, except the weights: the view computes those */
	enum uns_schedule_for schedule_for; /* the framework whose param groups the optimizer has */
	bool with_schedule; /* scheduler files: only together with an optimizer */
	bool schedule_made; /* the checkpoint has none: the view makes it */
};

/* Set summary.resumed_by from the names of the checkpoint's files, and what follows from it. For formats: call it when
 * family and companions are set. */
void uns_resume_find(struct uns_catalog *cat);

/* Is it a file of random states ("rng_state_3.pth", "random_states_0.pkl")? */
bool uns_resume_is_rng(const char *name);

/* The optimizer as one file that is shown unchanged (optimizer.pt of a run without sharding), or NULL. */
const struct uns_companion *uns_resume_own_optimizer(const struct uns_catalog *cat);

/* Is there a scheduler beside the optimizer (a Trainer restores both or neither)? */
bool uns_resume_has_scheduler(const struct uns_catalog *cat);

/* Add a trainer_state.json computed from facts, unless the checkpoint's own is valid or nothing is known; and the notes
 * about it. */
int uns_resume_trainer_state_add(const struct uns_resume_input *in, struct uns_vtree *out, struct uns_err *err);

int uns_resume_files_add(const struct uns_resume_input *in, struct uns_vtree *out, struct uns_err *err);

#endif
