/* The model that an adapter is put on, as safetensors files in a directory of its own. */
#ifndef UNS_FILES_BASE_MODEL_H
#define UNS_FILES_BASE_MODEL_H

#include "model/catalog.h"
#include "names/config.h"

struct uns_base_model {
	/* n tensors in no catalog, in the order of their files; 0 = there is no base model, or it cannot be used. */
	const struct uns_tensor *v;
	size_t n;
	const char *where; /* its directory or its name, for sentences; NULL = no directory has one */
	const char *why;   /* why it cannot be used; NULL = it can */
	/* Its config.json, if that is not the one that is used for the checkpoint; else empty. */
	struct uns_span config;
	struct uns_config_info info; /* of that config.json */
};

/* Looks for model.safetensors, or model.safetensors.index.json, in `dir`; `out` stays as it is if neither is there. The
 * files are added to the catalog's, the tensors' pieces name them. Tensors live in the arena. Fails only if something
 * cannot be read at this moment; what is wrong with the files is out->why. */
int uns_base_model_read(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_arena *arena,
			struct uns_base_model *out, struct uns_err *err);

#endif
