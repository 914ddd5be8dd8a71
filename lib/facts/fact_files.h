/* What a file that a trainer wrote records of the training: facts out of trainer_state.json, training_args.json or
 * .bin, scheduler.pt. */
#ifndef UNS_FACTS_FACT_FILES_H
#define UNS_FACTS_FACT_FILES_H

#include "io/source.h"
#include "store/store.h"

/* The name of the fact that holds a unit map (facts/stored_units.h). */
#define UNITS_FACT "fsdp_units"

/* Reads the facts in the file `name` below root. Sets the origin of each to `origin`, and leaves subject and time to
 * the caller. Fails with -ENOTSUP if the file is none of those named above. */
int fact_file_read(const struct uns_root *root, const char *name, const char *origin, struct uns_arena *arena,
		   struct uns_store_fact **out, size_t *n, struct uns_err *err);

#endif
