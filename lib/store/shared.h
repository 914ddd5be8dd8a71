/* A store on a file system that other nodes write, too. There SQLite may fail with more than "locked": a journal that
 * another node has just deleted is still in this node's listing, or is just not readable. So what failed is tried again
 * for a while, before a sentence blames the file. */
#ifndef UNS_STORE_SHARED_H
#define UNS_STORE_SHARED_H

#include "store/database.h"

enum {
	SHARED_OPEN_S = 10,
	SHARED_FACT_S = 30, /* a user waits for the answer, in a line with other nodes' */
};

struct shared_tries {
	int64_t until_ns; /* monotonic; 0 = it was not tried yet */
	unsigned n;
};

/* After `code`: true = it has waited a moment, and the caller is to try again. False: the store is local, or may not be
 * written at all, the code is of another kind, or `seconds` have passed since the first failure. */
bool shared_try_again(const struct uns_store *store, int code, unsigned seconds, struct shared_tries *tries);

#endif
