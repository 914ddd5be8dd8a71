/* What an open file of unshard.h shows. */
#ifndef UNS_PATHS_FILES_H
#define UNS_PATHS_FILES_H

#include "paths/spots.h"
#include "session/session.h"

/* Open what is at the spot, which ends. name: for messages. */
int file_open_spot(struct unshard *u, struct spot *spot, const char *name, struct unshard_file **out,
		   struct uns_err *err);

/* What its bytes come from; layout NULL: a text that unshard has made. */
struct file_bytes {
	const struct uns_layout *layout;
	struct uns_backing *backing;
	uint64_t size_bytes;
};
struct file_bytes file_bytes(const struct unshard_file *file);

/* The one source file that it shows as it is, all of it; false = it is put together, or made. */
bool file_is_source(const struct unshard_file *file, struct uns_backing **backing, uint32_t *source);

#endif
