/* Seals: lists of what a checkpoint held. Kept until they are replaced: clearing the cached metadata leaves them.
 */
#include "store/store.h"

#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "store/change.h"
#include "store/look.h"
#include "store/packed.h"

struct seal_wanted {
	const char *subject;
	struct uns_arena *arena;
	struct uns_span *out;
};

static int seal_find(struct uns_store *store, void *arg, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const struct seal_wanted *want = arg;
	struct uns_span packed;
	int row;

	UNS_TRY(database_prepare(store, "SELECT bytes FROM seal WHERE subject = ?", &s, err));
	sqlite3_bind_text(s, 1, want->subject, -1, SQLITE_STATIC);
	row = statement_step(store, s, err);
	if (row < 0)
		return row;
	if (!row)
		return uns_fail(err, -ENOENT, "%s was not sealed", want->subject);
	UNS_TRY(statement_bytes(store, s, 0, &packed, err));
	return store_unpack(store, packed, "a seal", want->arena, want->out, err);
}

int uns_store_seal_get(struct uns_store *store, const char *subject, struct uns_arena *arena, struct uns_span *out,
		       struct uns_err *err)
{
	struct seal_wanted want = { subject, arena, out };

	return store_look(store, BUSY_FACT_MS, seal_find, &want, err);
}

struct seal {
	const char *subject, *packed;
	size_t n;
};

static int seal_insert(struct uns_store *store, const void *arg, struct uns_err *err)
{
	UNS_CLEANUP(statement_end) sqlite3_stmt *s = NULL;
	const struct seal *seal = arg;

	UNS_TRY(database_prepare(store, "INSERT OR REPLACE INTO seal (subject, time_s, bytes) VALUES (?, ?, ?)", &s,
				 err));
	sqlite3_bind_text(s, 1, seal->subject, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (int64_t)time(NULL));
	sqlite3_bind_blob64(s, 3, seal->packed, seal->n, SQLITE_STATIC);
	return statement_step(store, s, err);
}

int uns_store_seal_put(struct uns_store *store, const char *subject, const void *bytes, size_t len, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *packed = NULL;
	size_t n;

	if (store->read_only)
		return uns_fail(err, -EROFS, "metadata store %s is read-only", store->path);
	if (len > STORE_PACKED_MAX_BYTES)
		return uns_fail(err, -EFBIG, "a seal of %zu bytes is not kept", len);
	UNS_TRY(store_pack(bytes, len, &packed, &n, err));
	return store_change(store, seal_insert, &(struct seal){ subject, packed, n }, err);
}
