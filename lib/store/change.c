#include "store/change.h"

#include "base/cleanup.h"
#include "io/mounts.h"
#include "store/shared.h"

int change_turn(const struct uns_store *store, struct turn *turn, unsigned seconds, struct uns_err *err)
{
	return store->read_only || uns_is_local(store->path) ? 0 : turn_take(turn, store->path, seconds, err);
}

/* A node may hold pages that it read before it had the turn, and would write them back with its change. */
int change_anew(struct uns_store *store, struct uns_err *err)
{
	return store->read_only || uns_is_local(store->path) ? 0 : database_open_anew(store, err);
}

static int try_once(struct uns_store *store, change_fn *work, const void *arg, struct uns_err *err)
{
	UNS_TRY(change_anew(store, err));
	sqlite3_busy_timeout(store->db, BUSY_FACT_MS);
	UNS_TRY(database_begin(store, err));
	return database_end(store, work(store, arg, err), err);
}

int store_change(struct uns_store *store, change_fn *work, const void *arg, struct uns_err *err)
{
	UNS_CLEANUP(turn_give) struct turn turn = TURN_INIT;
	struct shared_tries tries = { 0 };
	struct uns_err why = { 0 };
	int code;

	UNS_TRY(change_turn(store, &turn, TURN_WAIT_S, err));
	pthread_mutex_lock(&store->lock);
	while ((code = try_once(store, work, arg, &why)) < 0 && shared_try_again(store, code, SHARED_FACT_S, &tries))
		why = (struct uns_err){ 0 };
	pthread_mutex_unlock(&store->lock);
	return code < 0 ? uns_fail_as(err, &why) : 0;
}
