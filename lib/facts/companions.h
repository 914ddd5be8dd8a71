/* Config, tokenizer, processor and adapter files that views show beside a checkpoint's weights. */
#ifndef UNS_FACTS_COMPANIONS_H
#define UNS_FACTS_COMPANIONS_H

#include "files/adapter_config.h"
#include "files/adapter_list.h"
#include "files/base_model.h"
#include "names/config.h"
#include "names/pipeline.h"
#include "names/published_names.h"
#include "names/sentence_modules.h"
#include "store/store_link.h"

/* A directory that -o model= names. */
struct model_dir {
	const char *run; /* the run, below SOURCE, that it is for; NULL = any run */
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
	struct store_link *store; /* for the facts "model" and "components" */
	bool has_facts;           /* the store had facts when the checkpoint was examined */
	const char *strip;        /* -o strip=, or NULL */
	bool keep_names;          /* -o names=memory */
	const struct uns_adapter_choice *adapters; /* -o adapters= */
};

struct companions {
	struct uns_arena arena;
	/* Files of other directories that the views show; all of them are in the catalog's list of files. */
	struct uns_companion *v;
	size_t n, cap;
	struct uns_span config; /* the bytes of the config.json that is used; empty = none was found */
	struct uns_config_info config_info;
	/* Tensor names of a model of the same family, from the first directory that has one. */
	struct uns_base_names base;
	struct uns_sentence_modules modules; /* of the modules.json that is used */
	struct uns_pipeline pipeline; /* of the model_index.json that is used */
	/* In front of every weight's name, and of no name of config.json's model; NULL = nothing is. A note reports it.
	 */
	const char *prefix;
	struct uns_adapter_facts adapter; /* for an adapter whose adapter_config.json was not found */
	struct uns_span adapter_config; /* the bytes of the one that is used; empty = none was found */
	struct uns_span
		*adapter_configs; /* of each adapter that the user names: NAME/adapter_config.json; empty = none */
	struct uns_base_model base_model; /* what an adapter alone is put on */
	struct uns_findings notes; /* what was borrowed from where, and what could not be borrowed */
	struct uns_root *model; /* the directory that the fact "model" of the store names, or NULL */
	struct uns_root *named; /* the directory of the model that the training's own files name, or NULL */
	struct uns_root *adapted; /* the directory that adapter_config.json names or the one above it, or NULL */
};

/* Chooses the files, reads config.json, and adds the files to the catalog. `out` must be zeroed; call
 * companions_fini whatever this returned. Fails if, at this moment, a directory cannot be listed or a
 * config.json cannot be read. */
int companions_choose(const struct companions_input *in, struct uns_catalog *cat, struct companions *out,
		      struct uns_err *err);
void companions_fini(struct companions *companions);

#endif
