/* Bytes for a caller. */
#ifndef UNS_SESSION_READS_H
#define UNS_SESSION_READS_H

#include "session/session.h"

/* What is read from. Borrowed. */
struct read_from {
	struct unshard *u;
	const char *name;    /* for messages */
	struct dir_record *record; /* NULL = no checkpoint's */
	struct uns_backing *backing;
	const struct uns_layout *layout;
	enum uns_way way;
	struct usage_entry *usage; /* what it counts for; NULL = no view */
};

/* uns_read, counted. A failure is logged and listed (.unshard/errors.log), and its checkpoint is looked at
 * again before it is shown again. */
ssize_t session_read(const struct read_from *from, void *buf, size_t len, uint64_t off, struct uns_err *err);

#endif
