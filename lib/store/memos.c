/* Memos: compressed bytes by kind and key. If anything goes wrong here, the caller finds the content out again. */
#include "store/store.h"

#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "store/change.h"
#include "store/packed.h"

enum { USED_STEP_S = 24 * 3600 }; /* the last use is kept no more exactly, so that reading rarely writes */

/* -- getting -- */

/* Lock held. */
static void memo_touch(struct uns_store *store, const char *kind, uint64_t key, int64_t now)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;

	if (store->read_only || change_anew(store, NULL) < 0 ||
	    database_prepare(store, "UPDATE memo SET used_s = ? WHERE kind = ? AND key = ?", &s, NULL) < 0)
		return;
	sqlite3_bind_int64(s, 1, now);
	sqlite3_bind_text(s, 2, kind, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 3, (int64_t)key);
	statement_step(store, s, NULL);
}

static int memo_find(struct uns_store *store, const char *kind, uint64_t key, struct uns_arena *arena,
		     struct uns_span *out, int64_t *used_s, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	struct uns_span packed;
	int row;

	UNS_TRY(database_prepare(store, "SELECT bytes, used_s FROM memo WHERE kind = ? AND key = ?", &s, err));
	sqlite3_bind_text(s, 1, kind, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (int64_t)key);
	row = statement_step(store, s, err);
	if (row < 0)
		return row;
	if (!row)
		return uns_fail(err, -ENOENT, "there is no cached metadata");
	*used_s = sqlite3_column_int64(s, 1);
	UNS_TRY(statement_bytes(store, s, 0, &packed, err));
	return store_unpack(store, packed, "an entry of the cached metadata", arena, out, err);
}

int uns_store_memo_get(struct uns_store *store, const char *kind, uint64_t key, struct uns_arena *arena,
		       struct uns_span *out, struct uns_err *err)
{
	int64_t used_s, now = (int64_t)time(NULL);
	int code;

	pthread_mutex_lock(&store->lock);
	sqlite3_busy_timeout(store->db, BUSY_MEMO_MS);
	code = memo_find(store, kind, key, arena, out, &used_s, err);
	if (code == 0 && (now - used_s > USED_STEP_S || used_s > now) && change_turn_now(store, NULL) == 0)
		memo_touch(store, kind, key, now);
	change_end(store);
	return code;
}

/* -- putting -- */

static int memo_insert(struct uns_store *store, const char *kind, uint64_t key, const void *bytes, size_t len,
		       struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;

	UNS_TRY(database_prepare(store,
				 "INSERT OR REPLACE INTO memo (kind, key, used_s, size, bytes)"
				 " VALUES (?, ?, ?, ?, ?)",
				 &s, err));
	sqlite3_bind_text(s, 1, kind, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (int64_t)key);
	sqlite3_bind_int64(s, 3, (int64_t)time(NULL));
	sqlite3_bind_int64(s, 4, (int64_t)len);
	sqlite3_bind_blob64(s, 5, bytes, len, SQLITE_STATIC);
	return statement_step(store, s, err);
}

/* The memo that is forgotten first. Of two with the same last use, it is the one that was put first. */
static int memo_oldest(struct uns_store *store, sqlite3_stmt *oldest, int64_t *rowid, uint64_t *size,
		       struct uns_err *err)
{
	int row = statement_step(store, oldest, err);

	if (row > 0) {
		*rowid = sqlite3_column_int64(oldest, 0);
		*size = (uint64_t)sqlite3_column_int64(oldest, 1);
	}
	sqlite3_reset(oldest);
	return row;
}

static int memo_delete(struct uns_store *store, sqlite3_stmt *removal, int64_t rowid, struct uns_err *err)
{
	int code;

	sqlite3_bind_int64(removal, 1, rowid);
	code = statement_step(store, removal, err);
	sqlite3_reset(removal);
	return code;
}

/* Delete the least recently used memos until the rest fits. */
static int memos_evict(struct uns_store *store, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *sum = NULL;
	UNS_CLEANUP(statement_end) sqlite3_stmt *oldest = NULL;
	UNS_CLEANUP(statement_end) sqlite3_stmt *removal = NULL;
	uint64_t held, size;
	int64_t rowid;
	int row;

	UNS_TRY(database_prepare(store, "SELECT coalesce(sum(size), 0) FROM memo", &sum, err));
	UNS_TRY(row = statement_step(store, sum, err));
	held = row > 0 ? (uint64_t)sqlite3_column_int64(sum, 0) : 0;
	if (held <= store->memo_bound_bytes)
		return 0;
	sqlite3_reset(sum);
	UNS_TRY(database_prepare(store, "SELECT rowid, size FROM memo ORDER BY used_s, rowid LIMIT 1", &oldest, err));
	UNS_TRY(database_prepare(store, "DELETE FROM memo WHERE rowid = ?1", &removal, err));
	while (held > store->memo_bound_bytes) {
		row = memo_oldest(store, oldest, &rowid, &size, err);
		if (row <= 0)
			return row;
		UNS_TRY(memo_delete(store, removal, rowid, err));
		held -= uns_u64_min(held, size);
	}
	return 0;
}

/* A memo may be lost in a power cut, as long as the file stays whole: with a WAL, NORMAL saves waiting for the disk.
 * Without one, NORMAL may damage the file, which holds facts too. */
static int memo_put(struct uns_store *store, const char *kind, uint64_t key, const void *bytes, size_t len,
		    struct uns_err *err)
{
	int code;

	UNS_TRY(change_anew(store, err));
	sqlite3_busy_timeout(store->db, BUSY_MEMO_MS);
	if (store->has_wal)
		UNS_TRY(database_exec(store, "PRAGMA synchronous=NORMAL", err));
	code = database_begin(store, err);
	if (code == 0) {
		code = memo_insert(store, kind, key, bytes, len, err);
		if (code == 0)
			code = memos_evict(store, err);
		code = database_end(store, code, err);
	}
	sqlite3_exec(store->db, "PRAGMA synchronous=FULL", NULL, NULL, NULL);
	return code;
}

int uns_store_memo_put(struct uns_store *store, const char *kind, uint64_t key, const void *bytes, size_t len,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *packed = NULL;
	struct uns_err why = { 0 };
	bool first, others;
	size_t n;
	int code;

	if (store->read_only)
		return uns_fail(err, -EROFS, "metadata store %s is read-only", store->path);
	if (len > STORE_PACKED_MAX_BYTES)
		return uns_fail(err, -EFBIG, "cached metadata of %zu bytes is not kept", len);
	UNS_TRY(store_pack(bytes, len, &packed, &n, err));
	pthread_mutex_lock(&store->lock);
	code = change_turn_now(store, &why);
	others = code == -EBUSY; /* change the store: this memo is left out */
	if (code == 0)
		code = memo_put(store, kind, key, packed, n, &why);
	first = code < 0 && !others && !store->memo_failed;
	store->memo_failed |= first;
	change_end(store);
	if (first)
		uns_log(store->log, UNS_LOG_WARN, "%s", why.text);
	return code < 0 ? uns_fail_as(err, &why) : 0;
}

/* -- forgetting -- */

static int memos_delete(struct uns_store *store, const void *arg, struct uns_err *err)
{
	(void)arg;
	return database_exec(store, "DELETE FROM memo; PRAGMA incremental_vacuum", err);
}

int uns_store_memo_clear(struct uns_store *store, struct uns_err *err)
{
	UNS_TRY(store_change(store, memos_delete, NULL, err));
	database_shorten_log(store);
	return 0;
}

void uns_store_memo_bound(struct uns_store *store, uint64_t bytes)
{
	pthread_mutex_lock(&store->lock);
	store->memo_bound_bytes = bytes;
	pthread_mutex_unlock(&store->lock);
}
