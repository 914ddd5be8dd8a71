/* What is in front of all names of a model that from_pretrained does not know: "0.model." of a SentenceTransformer,
 * "policy." of a trainer's wrapper. It would load none of these weights, with a warning in its log at most. */
#ifndef UNS_NAMES_PREFIXES_H
#define UNS_NAMES_PREFIXES_H

#include "names/config.h"

struct uns_found_prefix {
	/* A name that from_pretrained looks for, if no weight has one; NULL: some weight has one, or nothing is known
	 * of this family's names. */
	const char *missed;
	/* Without it, names would be the model's: in the arena. NULL = there is no such prefix. */
	const char *prefix;
	bool is_everywhere; /* every tensor of the model has the prefix, and more behind it */
};

/* `strip`: -o strip=, which is taken off first; NULL = none. What transformers does with base_model_prefix is in
 * core_model_loading.py, rename_source_key (5.23): it takes the prefix off a name, or adds it, if the result is a
 * name of the model. */
int uns_prefix_find(const struct uns_config_info *info, const struct uns_catalog *cat, const char *strip,
		    struct uns_arena *arena, struct uns_found_prefix *out, struct uns_err *err);

#endif
