/* Descriptors of source files. A file is opened when it is first read, then shared by all readers, and closed a second
 * after its last use: what a trainer deletes would take space for as long as a descriptor is open, and on NFS its
 * directory could not be removed. A file without a name is closed under its readers, a second after that was seen. When
 * another file needs a descriptor, the least recently used one is closed. Knows no tensors.
 *
 * On a file system that is not this kernel's alone, to open a file again is a request to a program or a server, which
 * may have forgotten what it fetched of it (s3fs). There the last use of a file is that of any file of its checkpoint,
 * for as long as it has its name: that is compared once a second. */
#ifndef UNS_ENGINE_FDS_H
#define UNS_ENGINE_FDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/thread.h"
#include "engine/counters.h"
#include "io/direct.h"
#include "model/catalog.h"

/* One for each way that a source file is read, zero-initialised; all other fields belong to the table's lock. */
struct uns_fd_slot {
	TAILQ_ENTRY(uns_fd_slot) idle; /* while it is open and not pinned */
	bool is_open, is_opening, is_asking, is_idle;
	bool past_cache; /* set by the owner at first: read it by O_DIRECT, where that is possible */
	int64_t *checkpoint_used_ns; /* set by the owner at first, shared by its slots: when one was last unpinned,
					monotonic; NULL = each is used for itself */
	_Atomic bool foreseen; /* set by the owner: storage is asked ahead of readers (streams.h) */
	bool as_asked;   /* stable while pinned: the fd is read so (uns_fd_read_as_asked) */
	bool no_pages;   /* stable while pinned: not uns_fd_reads_pages */
	int fd;          /* stable while pinned */
	struct uns_direct direct; /* how the fd is read */
	unsigned n_pins;
	bool let_go; /* of a pinned one: close it when it is not pinned any more */
	uint64_t name;    /* the open file's (uns_fd_name) if it is kept with its checkpoint; else 0 */
	int64_t used_ns; /* while it is idle, monotonic: when it was unpinned, or found to be kept with its checkpoint
			  */
	int64_t asked_ns; /* atomic, monotonic: when its identity was last asked of its storage, and got; 0 = never */
	int64_t gone_ns; /* monotonic: when the open file was first seen to have no name; 0 = it has one */
	uint64_t nlink; /* names the file had when it was last checked */
	int64_t ctime_ns; /* its ctime with so many */
};

struct uns_fds {
	pthread_mutex_t lock;
	pthread_cond_t room; /* a slot became idle or was closed */
	pthread_cond_t opened; /* a slot is not being opened any more */
	pthread_cond_t answered; /* no thread asks for a slot's identity any more */
	TAILQ_HEAD(, uns_fd_slot) idle; /* the oldest use first */
	size_t n_open, max_open; /* n_open counts those being opened */
	struct uns_counters *count;

	/* The thread that closes idle files; it is begun when there is one first. */
	pthread_t closer;
	pthread_cond_t wanted;
	struct uns_processors processors; /* of the closer */
	bool has_closer, asleep, ending; /* asleep: until a file is open */
};

/* How many descriptors the engine may use: most of what the process may have, as its soft limit is now. */
size_t uns_fds_budget(void);

void uns_fds_init(struct uns_fds *fds, size_t max_open, struct uns_counters *count);
void uns_fds_fini(struct uns_fds *fds); /* waits for the file that is being closed, if one is */

/* Open the file unless it is open, and keep it open until it is unpinned. Waits while another thread opens it, and
 * while all descriptors are pinned, so a thread must not pin two. -ESTALE when the file is not the one that the catalog
 * saw, -ENODATA when it was missing already, -EMFILE when the process has no descriptor left for even one file. */
int uns_fds_pin(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file, struct uns_err *err);
void uns_fds_unpin(struct uns_fds *fds, struct uns_fd_slot *slot);

/* Is the file open, so that to pin it does not wait for storage? It may be closed right after. */
bool uns_fds_is_open(struct uns_fds *fds, struct uns_fd_slot *slot);

/* Does the pinned slot's descriptor still hold the bytes that the catalog saw? -ESTALE if not. By what the kernel
 * knows; once a second, and first of all, it asks the file's storage. Waits while another thread does. */
int uns_fds_check(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file, struct uns_err *err);

/* Close the slot's file now, or as soon as it is not pinned: another one may have its name. Pinning it again opens it.
 */
void uns_fds_let_go(struct uns_fds *fds, struct uns_fd_slot *slot);

void uns_fds_close(struct uns_fds *fds, struct uns_fd_slot *slot); /* not pinned */

#endif
