/* Names of tensors as layers: "model.layers.7.mlp.experts.3.up_proj.weight" is the tensor
 * "mlp.experts.#.up_proj.weight" of layer 7 of the stack "model.layers", for expert 3. A name without a number belongs
 * to no stack. Pure. */
#ifndef UNS_WHOLE_STACKS_H
#define UNS_WHOLE_STACKS_H

#include "base/map.h"
#include "model/tree.h"

enum { UNS_MAX_LAYERS = 4096 }; /* no model has more: a higher number names no layer */

/* One tensor that layers of a stack have. */
struct uns_leaf {
	const char *name; /* '#' is the number of an expert */
	bool has_experts;
	uint32_t n_experts; /* the highest number + 1 */
	/* Of each layer, by its number: how many such tensors it has (1, or one for each expert), and the first of
	 * them as an index into the weights. */
	uint32_t *count, *first;
};

struct uns_stack {
	const char *name; /* "model.layers" */
	uint32_t n_layers; /* the highest number + 1 */
	uint32_t n_there; /* layers that have at least one tensor */
	bool *there; /* of each layer */
	size_t n_tensors;
	struct uns_leaf *leaf;
	size_t n_leaves, cap_leaves;
};

/* Where a tensor belongs: indices, and the number of the layer. */
struct uns_place {
	uint32_t stack, leaf, layer; /* stack: UNS_MAP_NO_INDEX = in none */
};

struct uns_stacks {
	struct uns_place *place; /* parallel to the tensors */
	struct uns_stack *v;
	size_t n, cap;
	struct uns_map in_stack; /* "model.layers" -> index */
	struct uns_map leaves; /* "model.layers\nmlp.up_proj.weight" -> index into the stack's leaves */
};

/* Sorts n tensors into stacks, which live in the arena. A stack whose numbers are too sparse to be those of layers
 * (it would need much more memory than its names) is left out. */
int uns_stacks_find(const struct uns_named_tensor *v, size_t n, struct uns_arena *arena, struct uns_stacks *out,
		    struct uns_err *err);
void uns_stacks_fini(struct uns_stacks *stacks);

#endif
