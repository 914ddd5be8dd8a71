/* What a file that a trainer wrote says about the training: facts out of trainer_state.json,
 * training_args.json or .bin, scheduler.pt. */
#ifndef UNS_FACTS_FACT_FILES_H
#define UNS_FACTS_FACT_FILES_H

#include "io/source.h"
#include "store/store.h"

/* The name that a layout of FSDP1's flat units is kept under (facts/stored_units.h). */
#define UNITS_FACT "fsdp_units"

/* The facts of `name` below root: subject and time are left open, origin is `origin`. -ENOTSUP when it
 * is none of these files. */
int fact_file_read(const struct uns_root *root, const char *name, const char *origin,
		   struct uns_arena *arena, struct uns_store_fact **out, size_t *n,
		   struct uns_err *err);

#endif
