/* Could a training write to this directory? Nothing is written to find out. */
#ifndef UNS_CHECK_OUTPUT_DIR_H
#define UNS_CHECK_OUTPUT_DIR_H

#include "base/arena.h"
#include "base/error.h"

/* *why: NULL = yes, else a sentence. A directory that is not there yet is made in the nearest one
 * above it. A relative path is taken from the working directory. -ENOMEM. */
int output_dir_check(const char *path, struct uns_arena *arena, const char **why, struct uns_err *err);

#endif
