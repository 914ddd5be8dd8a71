/* Tied weights: two names for one tensor, of which views write one. Which names may be left out, because their bytes
 * are proven equal to another tensor's. */
#ifndef UNS_FACTS_TIES_H
#define UNS_FACTS_TIES_H

#include "engine/engine.h"

struct ties {
	struct uns_arena arena;
	const struct uns_tensor **v;
	size_t n;
	struct uns_findings notes;
};

/* Call it for a model whose config.json ties its embeddings; model_type is config.json's, or NULL. Fills `out`, which
 * must be zeroed. Reads tensors only if recorded CRCs do not prove that they are equal; fails if a tensor could not be
 * read at this moment. */
int ties_prove(const struct uns_catalog *cat, const char *model_type, struct uns_backing *backing, struct ties *out,
	       struct uns_err *err);

#endif
