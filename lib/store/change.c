#include "store/change.h"

#include "base/cleanup.h"
#include "io/mounts.h"
#include "store/shared.h"

static int take_turn(const struct uns_store *store, struct turn *turn, unsigned seconds, struct uns_err *err)
{
	return store->read_only || uns_is_local(store->path) ? 0 : turn_take(turn, store->path, seconds, err);
}

int change_turn_now(struct uns_store *store, struct uns_err *err)
{
	return take_turn(store, &store->turn, 0, err);
}

int change_begin(struct uns_store *store, unsigned seconds, struct uns_err *err)
{
	struct turn turn = TURN_INIT;

	pthread_mutex_lock(&store->lock);
	if (store->turn.fd >= 0)
		return 1;
	pthread_mutex_unlock(&store->lock);
	UNS_TRY(take_turn(store, &turn, seconds, err));
	pthread_mutex_lock(&store->lock);
	store->turn = turn;
	return 0;
}

void change_end(struct uns_store *store)
{
	turn_give(&store->turn);
	pthread_mutex_unlock(&store->lock);
}

/* A node may hold pages that it read before it had the turn, and would write them back with its change. */
int change_anew(struct uns_store *store, struct uns_err *err)
{
	return store->read_only || uns_is_local(store->path) ? 0 : database_open_anew(store, err);
}

static int try_once(struct uns_store *store, bool is_new, change_fn *work, const void *arg, struct uns_err *err)
{
	if (!is_new)
		UNS_TRY(change_anew(store, err));
	sqlite3_busy_timeout(store->db, BUSY_FACT_MS);
	UNS_TRY(database_begin(store, err));
	return database_end(store, work(store, arg, err), err);
}

int store_change(struct uns_store *store, change_fn *work, const void *arg, struct uns_err *err)
{
	struct shared_tries tries = { 0 };
	struct uns_err why = { 0 };
	int is_new, code;

	UNS_TRY(is_new = change_begin(store, TURN_WAIT_S, err));
	while ((code = try_once(store, is_new, work, arg, &why)) < 0 &&
	       shared_try_again(store, code, SHARED_FACT_S, &tries)) {
		why = (struct uns_err){ 0 };
		is_new = false;
	}
	change_end(store);
	return code < 0 ? uns_fail_as(err, &why) : 0;
}
