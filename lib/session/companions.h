/* Config, tokenizer, processor and adapter files that a view shows beside the weights. */
#ifndef UNS_SESSION_COMPANIONS_H
#define UNS_SESSION_COMPANIONS_H

#include "session/snapshot.h"

/* -o model= */
struct model_dir {
	const char *run; /* below SOURCE; NULL = any */
	struct uns_root *root;
};

struct model_dirs {
	struct model_dir *v;
	size_t n;
};

struct companions_input {
	const struct uns_root *root;
	const char *path; /* the checkpoint's, below root */
	const struct model_dirs *models;
	struct store_link *store; /* for the fact "model" */
	bool has_facts;           /* the store had some when the checkpoint was examined */
};

/* Fills snap->borrowed, config and notes while the snapshot is built. */
int companions_choose(const struct companions_input *in, struct snapshot *snap,
		      struct uns_err *err);

#endif
