/* A change of the store: one transaction, in turn with other nodes where the store is on a network. */
#ifndef UNS_STORE_CHANGE_H
#define UNS_STORE_CHANGE_H

#include "store/database.h"

typedef int change_fn(struct uns_store *store, const void *arg, struct uns_err *err);

/* What the user asked for: runs `work` in a transaction and commits it. Waits for the turn, TURN_WAIT_S at most; on a
 * network `work` may run more than once. 0 = it is on disk. Takes the store's lock itself, after the wait. */
int store_change(struct uns_store *store, change_fn *work, const void *arg, struct uns_err *err);

/* The parts, for what may also be left undone. change_begin: takes the turn and the store's lock; none is needed for a
 * local store or one that is read-only. Returns 1 if the store was opened in this turn, else 0. change_end gives both
 * back. change_anew: between the two, before database_begin, unless it was opened in this turn. */
int change_begin(struct uns_store *store, unsigned seconds, struct uns_err *err);
int change_anew(struct uns_store *store, struct uns_err *err);
void change_end(struct uns_store *store);
/* For a caller with the lock. It does not wait for the turn: -EBUSY. turn_give ends it. */
int change_turn_now(struct uns_store *store, struct uns_err *err);

#endif
