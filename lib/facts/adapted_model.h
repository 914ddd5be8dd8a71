/* The directory of the model that an adapter was made for, by adapter_config.json. */
#ifndef UNS_FACTS_ADAPTED_MODEL_H
#define UNS_FACTS_ADAPTED_MODEL_H

#include "io/seen.h"
#include "wire/json.h"

struct adapted_model {
	const char *name;      /* base_model_name_or_path; NULL = none is recorded */
	const char *revision;  /* of the model of that name; NULL = none is recorded */
	struct uns_root *root; /* the directory is `path` below it; NULL = `why` it was not found */
	const char *path;
	const char *why;
};

/* adapter_config: the bytes of adapter_config.json; uid: that file's owner. `out` must be zeroed; close out->root
 * whatever this returned. */
int adapted_model_find(struct uns_span adapter_config, uint32_t uid, struct uns_capture *capture,
		       struct uns_arena *arena, struct adapted_model *out, struct uns_err *err);

/* The same of a model whose name is in out->name, and its revision in out->revision. by: the file that names it. */
int adapted_model_open(struct adapted_model *out, const char *by, uint32_t uid, struct uns_capture *capture,
		       struct uns_arena *arena, struct uns_err *err);

/* A text of the object, in the arena; *out = NULL if it has none, or an empty one. */
int adapted_model_text(const cJSON *json, const char *key, struct uns_arena *arena, const char **out,
		       struct uns_err *err);

#endif
