/* Source files of which one request has read bytes that are not checked yet. A request may take many pieces of one
 * file, and where storage is a program or a server each check may be a question to it: so each file is checked once,
 * after all of its reads and before any byte is used.
 *
 * Threads: those that read for the request, until they have all ended. */
#ifndef UNS_ENGINE_UNCHECKED_H
#define UNS_ENGINE_UNCHECKED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/fds.h"

enum { UNS_UNCHECKED_FILES = 64 };

struct uns_unchecked {
	pthread_mutex_t lock;
	struct uns_unchecked_file {
		struct uns_fd_slot *slot; /* by which it was read */
		const struct uns_file *file;
	} v[UNS_UNCHECKED_FILES];
	size_t n;
};

void uns_unchecked_init(struct uns_unchecked *of);
void uns_unchecked_fini(struct uns_unchecked *of);

/* The file was read, and its slot is pinned. false: there is no room, so that the caller checks it. */
bool uns_unchecked_add(struct uns_unchecked *of, struct uns_fd_slot *slot, const struct uns_file *file);

/* -ESTALE if one of them is not the file that the catalog saw (uns_fds_check). */
int uns_unchecked_check(const struct uns_unchecked *of, struct uns_fds *fds, struct uns_err *err);

#endif
