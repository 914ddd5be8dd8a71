/* Bytes of shards that storage is asked for before they are wanted, by threads of their own.
 *
 * To ask (posix_fadvise WILLNEED) may mean to wait: a file system on FUSE takes so many requests at once (12, where its
 * program sets no other number), and the next request waits for an answer. That would hold a reader up, if the thread
 * that answers it did the asking. So there is a thread for each storage (device number). How many requests are under
 * way is then up to the storage: as many as it takes.
 *
 * The thread asks by the readers' own description of a file, because another open is another request. What the kernel
 * does by itself for a reader would be in the way: see uns_fd_read_as_asked.
 *
 * Threads: any number may call uns_ahead_ask, uns_ahead_forget and uns_ahead_let_go. */
#ifndef UNS_ENGINE_AHEAD_H
#define UNS_ENGINE_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/catalog.h"

enum { UNS_AHEAD_THREAD_FDS = 128 }; /* descriptors that a thread may hold */

struct uns_ahead;

/* A stretch of a file. */
struct uns_ahead_ask {
	const struct uns_file *file; /* distinguished by it; not used once the call has returned */
	int fd;        /* may be closed then */
	uint64_t at, end;
	uint64_t call_bytes; /* the kernel heeds no more of one call by this descriptor */
	const void *reader;  /* which wants it */
};

/* Threads are started on first use, so that a process may fork after this; each ends when nothing was asked of it for a
 * second. */
int uns_ahead_new(unsigned most_threads, struct uns_ahead **out, struct uns_err *err);
/* Ends the threads. One that storage holds up longer than a second is left behind, and takes with it what it needs. */
void uns_ahead_free(struct uns_ahead *ahead);

/* Never waits. Returns false if the stretch will not be asked for: too much is to be asked already, there is no thread
 * or no descriptor left. */
bool uns_ahead_ask(struct uns_ahead *ahead, const struct uns_ahead_ask *ask);
/* The reader wants no more of what was not asked yet. */
void uns_ahead_forget(struct uns_ahead *ahead, const void *reader);
/* No reader wants it. Closes what it holds of the file; if a thread asks for a part at this moment, that thread closes
 * it. */
void uns_ahead_let_go(struct uns_ahead *ahead, const struct uns_file *file);

#endif
