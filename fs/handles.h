/* Open files and directories. They are listed, because a mount that goes away while files are open
 * never releases them one by one, and a session must have no open file when it is closed. */
#ifndef FS_HANDLES_H
#define FS_HANDLES_H

#include <pthread.h>
#include <stdatomic.h>

#include "nodes.h"
#include "unshard.h"

struct fs_handle {
	struct fs_handle *prev, *next; /* under the list's lock */
	struct fs_node *node;
	unshard_file *file;              /* files */
	unshard_listing *listing;        /* directories, from the first readdir on */
	bool young;        /* opened before its checkpoint had settled; under the list's lock */
	unsigned n_holds;  /* the kernel's, and those of requests that work on it; under the list's lock */
};

struct fs_handles {
	pthread_mutex_t lock;
	struct fs_handle *head;
};

void fs_handles_init(struct fs_handles *handles);
/* Closes what is still open. No request may be in progress. */
void fs_handles_fini(struct fs_handles *handles);

/* Owns `file` (NULL for a directory) from success on. NULL = out of memory. */
struct fs_handle *fs_handles_open(struct fs_handles *handles, struct fs_node *node, unshard_file *file, bool young);
/* The handle that the kernel names by its address, `fh`: a thread that is not the one that opened it sees it whole. */
struct fs_handle *fs_handles_given(struct fs_handles *handles, uint64_t fh);
void fs_handles_hold(struct fs_handles *handles, struct fs_handle *handle);
/* Once for fs_handles_open, and once for each hold; the last one closes it. */
void fs_handles_close(struct fs_handles *handles, struct fs_handle *handle);

#endif
