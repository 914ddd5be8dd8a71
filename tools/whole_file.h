/* A file that a verb was asked to write: it is whole, or it is not there. */
#ifndef TOOLS_WHOLE_FILE_H
#define TOOLS_WHOLE_FILE_H

#include <stdio.h>

struct whole_file {
	const char *name; /* as the user wrote it; "-" = stdout */
	const char *const *sources; /* absolute paths, without links, in which no file may be written; NULL behind the
				       last */
	void (*put)(FILE *to, const void *ctx); /* writes all of it; errors are found by ferror */
	const void *ctx;
};

/* Writes beside `name`, and renames: no reader sees half of it, and an older file stays if this fails. An exit status.
 */
int whole_file_write(const struct whole_file *file);

#endif
