/* Reading what the store must not get wrong: facts, seals, counts. */
#ifndef UNS_STORE_LOOK_H
#define UNS_STORE_LOOK_H

#include <stdbool.h>

#include "store/database.h"

typedef int look_fn(struct uns_store *store, void *arg, struct uns_err *err);

/* Where other nodes change the file, a client may show pages of before beside pages of after for up to a second, and
 * SQLite keeps what it read. So the file is opened again when it is another one, and until it has been that one for a
 * while. false: it has not, and what is read now is to be read again. The store's lock is held. */
bool look_is_settled(struct uns_store *store);

/* Runs `work` in a transaction that changes nothing: all that it reads is of one moment. Where other nodes change the
 * file, readers take no turn, and this node may also know a journal that is gone: there `work` runs again, with the
 * file opened again, for longer than a client knows what is old, before its failure counts. Waits busy_ms for another's
 * lock each time. Takes the store's lock itself. */
int store_look(struct uns_store *store, int busy_ms, look_fn *work, void *arg, struct uns_err *err);

#endif
