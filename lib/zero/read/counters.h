/* How many steps the engine had made, as the model file of each rank records it. */
#ifndef UNS_ZERO_READ_COUNTERS_H
#define UNS_ZERO_READ_COUNTERS_H

#include "zero/read/dir.h"

/* Adds one finding if the model files of a tag directory differ in it: those that differ are another save's. Each rank
 * resumes from its own file, so all are read; one that is damaged or missing is passed over. */
int uns_zero_counters_check(struct uns_catalog *cat, const struct uns_zero_dir *dir, struct uns_err *err);

#endif
