/* Config, tokenizer, processor and adapter files that views show beside a checkpoint's weights. */
#ifndef UNS_FACTS_COMPANIONS_H
#define UNS_FACTS_COMPANIONS_H

#include "files/config.h"
#include "files/published_names.h"
#include "store/store_link.h"

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

struct companions {
	struct uns_arena arena;
	struct uns_companion *v; /* files of other directories; all are files of the catalog */
	size_t n, cap;
	struct uns_span config; /* config.json's bytes; empty = there is none that can be used */
	struct uns_config_info config_info;
	struct uns_base_names base; /* of the first directory with files of a model of this family */
	struct uns_findings notes; /* what was borrowed from where, and what could not be */
	struct uns_root *model;    /* the directory that the store's fact "model" names; or NULL */
};

/* Adds the files to the catalog. `out` is zeroed before, and companions_fini is called whatever this
 * returned. Reads config.json. Fails where a directory cannot be listed, or a config.json read, at this
 * moment. */
int companions_choose(const struct companions_input *in, struct uns_catalog *cat,
		      struct companions *out, struct uns_err *err);
void companions_fini(struct companions *companions);

#endif
