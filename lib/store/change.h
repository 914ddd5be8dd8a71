/* A change of the store: one transaction, in turn with other nodes where the store is on a network. */
#ifndef UNS_STORE_CHANGE_H
#define UNS_STORE_CHANGE_H

#include "store/database.h"
#include "store/turn.h"

typedef int change_fn(struct uns_store *store, const void *arg, struct uns_err *err);

/* What the user asked for: runs `work` in a transaction and commits it. Waits for the turn, TURN_WAIT_S at most; on a
 * network `work` may run more than once. 0 = it is on disk. Takes the store's lock itself, after the wait. */
int store_change(struct uns_store *store, change_fn *work, const void *arg, struct uns_err *err);

/* The parts, for what may also be left undone. change_turn: without the store's lock; no turn is needed for a local
 * store or one that is read-only. change_anew: with it, before database_begin. */
int change_turn(const struct uns_store *store, struct turn *turn, unsigned seconds, struct uns_err *err);
int change_anew(struct uns_store *store, struct uns_err *err);

#endif
