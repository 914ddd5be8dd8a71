/* Tied weights that are written once: which may be left out, because they are proven equal to another. */
#ifndef UNS_FACTS_TIES_H
#define UNS_FACTS_TIES_H

#include "engine/engine.h"

struct ties {
	struct uns_arena arena;
	const struct uns_tensor **v;
	size_t n;
	struct uns_findings notes;
};

/* Of a model whose config ties its embeddings. Fills `out`, which is zeroed. Reads tensors where nothing
 * else proves that they are equal; fails where one could not be read at this moment. */
int ties_prove(const struct uns_catalog *cat, struct uns_backing *backing, struct ties *out,
	       struct uns_err *err);

#endif
