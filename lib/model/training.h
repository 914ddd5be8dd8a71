/* What is known about the training that a checkpoint belongs to: facts by key, each as JSON text with where it comes
 * from. The session merges them once (option > store > checkpoint > sibling > default); makers of files only read. */
#ifndef UNS_MODEL_TRAINING_H
#define UNS_MODEL_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uns_fact {
	const char *key;    /* TrainerState's or TrainingArguments' name: "global_step" */
	const char *json;   /* the value as JSON text: 200, 0.5, "steps", [..]; integers as integers */
	const char *origin; /* "the directory's name", "trainer_state.json of checkpoint-300", ... */
	bool assumed;       /* a documented default, not known; problems.txt lists it */
};

struct uns_training {
	const struct uns_fact *v; /* sorted by key, keys unique */
	size_t n;
	const char *const *note; /* disagreements: "step 200 by the directory's name, 198 by scheduler.pt" */
	size_t n_notes;
};

/* Borrowed, or NULL. */
const struct uns_fact *uns_training_find(const struct uns_training *t, const char *key);

/* The fact global_step; `otherwise` (the catalog's step) where it is not known. */
int64_t uns_training_step(const struct uns_training *t, int64_t otherwise);

#endif
