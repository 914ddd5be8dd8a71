/* What an open file of unshard.h shows. */
#ifndef UNS_PATHS_FILES_H
#define UNS_PATHS_FILES_H

#include "session/session.h"

/* The one source file that it shows as it is, all of it; false = it is put together, or made. */
bool file_is_source(const struct unshard_file *file, struct uns_backing **backing, uint32_t *source);

#endif
