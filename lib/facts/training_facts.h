/* What is known about the training that a checkpoint belongs to, out of all that may tell. */
#ifndef UNS_FACTS_TRAINING_FACTS_H
#define UNS_FACTS_TRAINING_FACTS_H

#include "engine/engine.h"
#include "model/training.h"
#include "store/store_link.h"

struct training_input {
	const struct uns_root *root;
	const char *path; /* the checkpoint's, below root */
	const struct uns_catalog *cat;
	struct uns_backing *backing; /* for the optimizer's own step */
	struct store_link *store;
	bool has_facts; /* the store had some for this checkpoint when it was examined */
	const char *const *option; /* "KEY=JSON", checked */
	size_t n_option;
};

struct training_found {
	struct uns_arena arena; /* zero it before */
	struct uns_training training;
	bool state_valid; /* the checkpoint's own trainer_state.json stays as it is */
	const char *assumed; /* what is assumed about the training, for the log; NULL = nothing */
};

/* Reads small files of the checkpoint and of those beside it, and the optimizer's step where nothing else
 * tells. Fails where something that may tell could not be read at this moment. */
int training_collect(const struct training_input *in, struct training_found *out,
		     struct uns_err *err);
void training_found_fini(struct training_found *found);

/* Is this a KEY=VALUE that -o fact= takes? */
int training_check_option(const char *text, struct uns_err *err);

#endif
