/* Bytes of shards that storage is asked for before they are wanted, by threads of their own.
 *
 * To ask (posix_fadvise WILLNEED) may mean to wait: a file system on FUSE takes so many requests at once (12, where its
 * program sets no other number), and the next request waits for an answer. That would hold a reader up, if the thread
 * that answers it did the asking. So there is a thread for each storage (device number). How many requests are under
 * way is then up to the storage: as many as it takes.
 *
 * Some storage takes one: to ask waits until the bytes have come, as a program on FUSE that the kernel may not
 * read asynchronously. A reader may want several threads for it (-o reads=threads). They take the stretches that come
 * first among them, 1 MiB at a time.
 *
 * The threads ask by the readers' own description of a file, because another open is another request. What the kernel
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

enum {
	UNS_AHEAD_STORAGE_FDS = 128, /* descriptors that the threads of one may hold */
	UNS_AHEAD_THREADS = 16, /* of one, if a reader wants several */
};

struct uns_ahead;

/* A stretch of a file. */
struct uns_ahead_ask {
	const struct uns_file *file; /* distinguished by it; not used once the call has returned */
	int fd;        /* may be closed then */
	uint64_t at, end;
	uint64_t call_bytes; /* the kernel heeds no more of one call by this descriptor */
	const void *reader;  /* which wants it */
	unsigned most_threads; /* of this storage from now on, until another call names another number; at least 1 */
};

/* Threads are started on first use, so that a process may fork after this; each ends when nothing was asked of it for a
 * second. Of more storages at once nothing is asked for. */
int uns_ahead_new(unsigned most_storages, struct uns_ahead **out, struct uns_err *err);
/* Ends the threads. One that storage holds up longer than a second is left behind, and takes with it what it needs. */
void uns_ahead_free(struct uns_ahead *ahead);

/* Never waits. Returns false if the stretch will not be asked for: too much is to be asked already, there is no thread,
 * or no descriptor left. */
bool uns_ahead_ask(struct uns_ahead *ahead, const struct uns_ahead_ask *ask);
/* The reader wants no more of what was not asked yet. */
void uns_ahead_forget(struct uns_ahead *ahead, const void *reader);
/* Is to ask this storage to wait? Of what it was asked for since its threads began, most was there when the call
 * returned. true while nothing shows that it was not. */
bool uns_ahead_waits(struct uns_ahead *ahead, uint64_t dev);
/* No reader wants it. Closes what it holds of the file; if threads ask for parts at this moment, the last of them
 * closes it. */
void uns_ahead_let_go(struct uns_ahead *ahead, const struct uns_file *file);

#endif
