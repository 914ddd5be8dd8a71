/* Copies of plain values in which some parts stand for others: tensors inside them, for one. */
#ifndef UNS_WIRE_VALUE_MAP_H
#define UNS_WIRE_VALUE_MAP_H

#include "base/arena.h"
#include "base/error.h"
#include "wire/value.h"

struct uns_value_mapper {
	/* 1 = *out stands for v, 0 = v stays and what it holds is looked at; or an error. Asked in the
	 * order of the data, what contains first. */
	int (*replace)(void *ctx, const struct uns_value *v, const struct uns_value **out,
		       struct uns_err *err);
	void *ctx;
};

/* Looks into lists, tuples and the values of dicts; objects, sets and keys stay as they are. What has
 * not changed is shared with v. -ENOTSUP for a value that is larger or nested deeper than anything in
 * a checkpoint is, or holds itself. */
int uns_value_map(const struct uns_value *v, const struct uns_value_mapper *m,
		  struct uns_arena *arena, const struct uns_value **out, struct uns_err *err);

#endif
