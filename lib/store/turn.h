/* The turn to change a store that other nodes change, too: a lock on a file beside it, STORE-turn. SQLite's own locks
 * do not wait in a line, and a node that read the file before it had the lock may go by pages that are old by then. */
#ifndef UNS_STORE_TURN_H
#define UNS_STORE_TURN_H

#include "base/error.h"

struct turn {
	int fd; /* -1: it is not held */
};

#define TURN_INIT ((struct turn){ .fd = -1 })

enum { TURN_WAIT_S = 600 };

/* Waits at most `seconds` while others have the turn, and then a second longer where a client may know the store from
 * before; 0: does not wait. At once if it is held by `turn`. 0 = it is held, or the file system has no locks: then fd
 * stays -1. -EBUSY: others had it all the time, or there was to be a wait; -EINTR: a signal's handler ran; -EROFS: the
 * lock file may not be made or written. A process that ends gives its turn. Threads: any, each with its own. */
int turn_take(struct turn *turn, const char *store_path, unsigned seconds, struct uns_err *err);
void turn_give(struct turn *turn);

#endif
