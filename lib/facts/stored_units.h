/* A layout of FSDP1's flat units, which no checkpoint holds, as the store keeps it: {"units": ..}, and the
 * generation of the files that it was imported for. A layout without a generation is a run's: it is
 * compared with each checkpoint's sizes and shapes when that is read. What a layout must look like:
 * ranks/units.h; what users write it with: docs/flat-units.md. */
#ifndef UNS_FACTS_STORED_UNITS_H
#define UNS_FACTS_STORED_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* The layout among these facts, for a checkpoint whose own files are of this generation; NULL = none.
 * *stale: there is one, which belongs to other files. Borrowed. */
const char *stored_units_find(const struct uns_store_fact *v, size_t n, uint64_t own_generation,
			      bool *stale);

/* Make the layout belong to the files of this generation. */
int stored_units_bind(struct uns_store_fact *fact, uint64_t own_generation, struct uns_arena *arena,
		      struct uns_err *err);

#endif
