/* What the facts about a training are collected from, and what is found. */
#ifndef UNS_FACTS_TRAINING_INPUT_H
#define UNS_FACTS_TRAINING_INPUT_H

#include "engine/engine.h"
#include "model/training.h"
#include "store/store_link.h"

struct training_input {
	const struct uns_root *root;
	const char *path; /* the checkpoint's, below root */
	const struct uns_catalog *cat;
	struct uns_backing *backing; /* for the optimizer's own step */
	struct store_link *store;
	bool has_facts; /* the store had facts for this checkpoint when it was examined */
	const char *const *option; /* "KEY=JSON" of each -o fact=, checked by training_check_option */
	size_t n_option;
};

struct training_found {
	struct uns_arena arena; /* zero it before */
	struct uns_training training;
	bool state_valid; /* the checkpoint's own trainer_state.json is valid and is shown unchanged */
	/* A sentence for the log that names what is assumed about the training; NULL = nothing is. */
	const char *assumed;
};

#endif
