/* unshard_store_*: the metadata store as a whole. */
#include <time.h>

#include "api/caller.h"
#include "session/session.h"

const char *unshard_store_file(const unshard *u)
{
	return u->store.off ? NULL : u->store.path;
}

int unshard_store_count(unshard *u, struct unshard_store_counts *out, struct unshard_error *error)
{
	struct unshard_store_counts own = { .size = sizeof(own) };
	struct uns_store_figures f = { 0 };
	struct uns_err err = { 0 };
	struct uns_store *store = store_hold(&u->store, &err);
	int code = store ? uns_store_count(store, &f, &err) : err.code;

	if (store)
		store_release(&u->store);
	own.size_bytes = f.size_bytes;
	own.facts = f.facts;
	own.seals = f.seals;
	own.cached = f.cached;
	own.cached_bytes = f.cached_bytes;
	own.read_only = f.read_only;
	if (code == 0)
		code = caller_give(out, &own, "store_counts", &err);
	return give_error(error, &err, code);
}

int unshard_store_verify(unshard *u, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct uns_store *store = store_hold(&u->store, &err);
	int code = store ? uns_store_verify(store, &err) : err.code;

	if (store)
		store_release(&u->store);
	return give_error(error, &err, code);
}

int unshard_store_forget(unshard *u, int64_t unused_s, size_t *n, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct uns_store *store = store_hold_to_change(&u->store, &err);
	uint64_t gone = 0;
	int code = store ? uns_store_memo_forget(store, (int64_t)time(NULL) - unused_s, &gone, &err) : err.code;

	if (store)
		store_release(&u->store);
	if (n)
		*n = (size_t)gone;
	return give_error(error, &err, code);
}

int unshard_store_copy(unshard *u, const char *path, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct uns_store *store = store_hold(&u->store, &err);
	int code = store ? uns_store_copy(store, path, &err) : err.code;

	if (store)
		store_release(&u->store);
	return give_error(error, &err, code);
}
