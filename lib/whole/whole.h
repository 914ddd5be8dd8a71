/* Is a model whole? Compares the names, shapes and dtypes of its weights with each other and with config.json: layers
 * and experts have numbers without a gap, each layer has what the other layers of its kind have, the embedding, the
 * last norm and the head are there. Pure: reads names and shapes only, O(number of tensors).
 *
 * What this cannot see: a tensor that every layer lacks, and the last layers of a model whose config.json does not
 * have their number. A base model shows both (check/check_base.c). */
#ifndef UNS_WHOLE_WHOLE_H
#define UNS_WHOLE_WHOLE_H

#include <stdbool.h>

#include "model/tree.h"
#include "names/config.h"

struct uns_whole_input {
	const struct uns_named_tensor *v; /* the weights, under the names that the view "weights" gives them */
	size_t n;
	struct uns_span config; /* config.json; empty = there is none */
	const struct uns_config_info *info; /* what was read from it */
	bool other_names; /* none of the weights has a name of the config's model: which are missing is not known */
};

/* Adds to `out`, in the arena, what is missing or unlike its siblings; nothing if the model is whole. Fails only if
 * memory is out. */
int uns_whole_find(const struct uns_whole_input *in, struct uns_arena *arena, struct uns_findings *out,
		   struct uns_err *err);

#endif
