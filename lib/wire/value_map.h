/* Copies of plain values in which some are replaced: tensors, for example. */
#ifndef UNS_WIRE_VALUE_MAP_H
#define UNS_WIRE_VALUE_MAP_H

#include "base/arena.h"
#include "base/error.h"
#include "wire/value.h"

struct uns_value_mapper {
	/* Returns 1 if *out replaces v; 0 if v stays, and the values inside it are asked about; or
	 * an error. Called in the order of the data, a container before its content. */
	int (*replace)(void *ctx, const struct uns_value *v, const struct uns_value **out, struct uns_err *err);
	void *ctx;
};

/* Looks into lists, tuples and the values of dicts; objects, sets and keys stay as they are. The copy shares with v
 * what did not change. -ENOTSUP if v holds itself, or is larger or nested deeper than any checkpoint's value. */
int uns_value_map(const struct uns_value *v, const struct uns_value_mapper *m, struct uns_arena *arena,
		  const struct uns_value **out, struct uns_err *err);

#endif
