/* A unit map as the metadata store keeps it, because no checkpoint contains one: {"units": [..]}, and the generation of
 * the checkpoint's files that it was imported for. A map without a generation was imported for a run: each checkpoint
 * compares it with its own sizes and shapes when it is read. The form of a map: ranks/units.h; how users write one:
 * docs/flat-units.md. */
#ifndef UNS_FACTS_STORED_UNITS_H
#define UNS_FACTS_STORED_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* Finds the unit map among the facts v[0..n) for a checkpoint whose own files have the generation `own_generation`.
 * Returns its JSON text, which belongs to `v`, or NULL if there is none. *stale is set if there is a map, but for other
 * files. */
const char *stored_units_find(const struct uns_store_fact *v, size_t n, uint64_t own_generation, bool *stale);

/* Records in the map's fact that it was imported for the files of this generation. */
int stored_units_bind(struct uns_store_fact *fact, uint64_t own_generation, struct uns_arena *arena,
		      struct uns_err *err);

#endif
