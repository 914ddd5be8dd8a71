/* param_shapes: which parameters a DeepSpeed optimizer holds, in the order in which it laid them out.
 * It is the only true order: param_slice_mappings, beside it in the optimizer's files, is wrong under
 * round_robin_gradients and never used. */
#ifndef UNS_ZERO_SHAPES_H
#define UNS_ZERO_SHAPES_H

#include "base/arena.h"
#include "model/box.h"
#include "wire/value.h"

struct uns_zero_param {
	const char *name; /* borrowed from the value */
	struct uns_shape shape;
	uint64_t elems;
};

/* One param group of stages 1 and 2; one sub-group of stage 3. */
struct uns_zero_shapes {
	struct uns_zero_param *v;
	size_t n;
};

/* A place in the list of one rank, where the lists of several are gone through together. All ranks list parameters in
 * the same order, but leave out those of which they hold nothing. */
struct uns_zero_cursor {
	const struct uns_zero_shapes *shapes;
	const struct uns_zero_param *now; /* NULL = the rank holds nothing of the parameter at hand */
	size_t next;
};
/* Continues at the parameter of that name. */
void uns_zero_cursor_go(struct uns_zero_cursor *cursor, const char *name);

/* {name: torch.Size, ...}; NULL or None gives none. */
int uns_zero_shapes_parse(const struct uns_value *dict, struct uns_arena *arena, struct uns_zero_shapes *out,
			  struct uns_err *err);

/* A list of those. In the first versions of stage 2 with one group, the dict itself. */
int uns_zero_shapes_parse_list(const struct uns_value *list, struct uns_arena *arena, struct uns_zero_shapes **out,
			       size_t *n, struct uns_err *err);

#endif
