/* What stands beside weights and optimizer in a directory that a trainer resumes from: scheduler,
 * scaler, random states, custom objects, trainer_state.json, config and the rest. */
#ifndef UNS_PARTS_RESUME_FILES_H
#define UNS_PARTS_RESUME_FILES_H

#include "model/training.h"
#include "model/tree.h"

struct uns_resume_input {
	const struct uns_catalog *catalog;
	const struct uns_companion *borrowed;
	size_t n_borrowed;
	const struct uns_training *training; /* NULL = nothing is known */
	bool trainer_state_valid;            /* the checkpoint's own is passed through */
	bool one_process; /* random states: rank 0's under the single-process name, no others */
	bool hide_rng;
	bool with_schedule; /* scheduler files: only together with an optimizer */
};

/* Saved by a Trainer rather than by a bare Accelerate loop: they name the optimizer's file
 * differently ("optimizer.pt", "optimizer.bin"). */
bool uns_resume_is_trainer(const struct uns_catalog *cat);

/* Is there a scheduler beside the optimizer (a Trainer restores both or neither)? */
bool uns_resume_has_scheduler(const struct uns_catalog *cat);

int uns_resume_files_add(const struct uns_resume_input *in, struct uns_vtree *out,
			 struct uns_err *err);

#endif
