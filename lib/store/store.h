/* The metadata store: one SQLite file. It keeps three kinds of things:
 *
 *   facts  what the user (or an import) states about a run or checkpoint: never deleted by us
 *   seals  what checkpoints held when they were sealed (lib/seal): kept until they are replaced
 *   memos  what can be found out again (parsed catalogs, CRCs), keyed by the identity of the source
 *          files: may be deleted at any time
 *
 * Threads: any; calls are serialised inside. No lock of the session is held while one runs.
 * A store that cannot be used is a sentence, never a reason not to serve: callers continue without. */
#ifndef UNS_STORE_STORE_H
#define UNS_STORE_STORE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"
#include "base/span.h"
#include "store/turn.h"

struct uns_store;

/* Open or create. Opens the database DEFENSIVE with trusted_schema off, WAL only where path lies on a local file
 * system, synchronous FULL for facts. An older schema is upgraded in a transaction; a newer one, or another program's
 * database, is refused (-ENOTSUP); a corrupt file is moved aside as PATH.corrupt-TIME (never overwritten) and a new one
 * made, which `note` (malloc'd, may be set on success) reports; a read-only one is opened for reading. To be called
 * after daemonising. `log` (may be NULL) must outlive the store. */
int uns_store_open(const char *path, const struct uns_log *log, struct uns_store **out, char **note,
		   struct uns_err *err);
/* The same by a caller that holds the turn to change it, which goes to the store, and from there to the next change. */
int uns_store_open_in_turn(const char *path, const struct uns_log *log, struct turn *turn, struct uns_store **out,
			   char **note, struct uns_err *err);
/* If none came: other nodes may have their turn. */
void uns_store_give_turn(struct uns_store *store);
void uns_store_close(struct uns_store *store); /* NULL is allowed */
bool uns_store_read_only(const struct uns_store *store);

/* -- facts. subject: the absolute path of a checkpoint or of a run above it -- */

struct uns_store_fact {
	const char *subject, *key, *json, *origin;
	int64_t time_s; /* when it was set, Unix; 0 to _set_all = now */
};

/* A fact that was acknowledged (0 returned) survives kill -9 and power loss. */
int uns_store_set(struct uns_store *store, const char *subject, const char *key, const char *json, const char *origin,
		  struct uns_err *err);
/* All or none of them. */
int uns_store_set_all(struct uns_store *store, const struct uns_store_fact *facts, size_t n, struct uns_err *err);
/* -ENOENT when it was not set. */
int uns_store_unset(struct uns_store *store, const char *subject, const char *key, struct uns_err *err);
/* Facts of the subject and of every directory above it; of equal keys the nearest counts. NULL = all
 * facts of all subjects. Sorted by subject, key. */
int uns_store_facts(struct uns_store *store, const char *subject, struct uns_arena *arena, struct uns_store_fact **out,
		    size_t *n, struct uns_err *err);
/* A number that changes whenever a fact changes, here or in another process. Cheap. *settled: facts that were read at
 * this number need not be read again (look.h). */
int uns_store_revision(struct uns_store *store, uint64_t *out, bool *settled, struct uns_err *err);

/* -- seals: a text for each checkpoint, by its absolute path -- */

/* -ENOENT: it has none. The arena's bytes are followed by a NUL. */
int uns_store_seal_get(struct uns_store *store, const char *subject, struct uns_arena *arena, struct uns_span *out,
		       struct uns_err *err);
/* Replaces an older one. Survives a power cut once 0 was returned. */
int uns_store_seal_put(struct uns_store *store, const char *subject, const void *bytes, size_t len,
		       struct uns_err *err);

/* -- memos -- */

/* kind: "catalog", "crc", "masters". key: a generation. Bytes are zstd-compressed in the file. Failures to put are not
 * errors for the caller to report (a full disk must not stop serving): they are logged once. */
int uns_store_memo_get(struct uns_store *store, const char *kind, uint64_t key, struct uns_arena *arena,
		       struct uns_span *out, struct uns_err *err);
int uns_store_memo_put(struct uns_store *store, const char *kind, uint64_t key, const void *bytes, size_t len,
		       struct uns_err *err);
int uns_store_memo_clear(struct uns_store *store, struct uns_err *err);
/* Those that were not used since; *n: how many. */
int uns_store_memo_forget(struct uns_store *store, int64_t before_s, uint64_t *n, struct uns_err *err);
/* Keep at most so many compressed bytes, the least recently used go first; default 1 GiB. */
void uns_store_memo_bound(struct uns_store *store, uint64_t bytes);

/* -- the store as a whole -- */

struct uns_store_figures {
	uint64_t size_bytes; /* of the file */
	uint64_t facts, seals, cached, cached_bytes;
	bool read_only;
};
int uns_store_count(struct uns_store *store, struct uns_store_figures *out, struct uns_err *err);
/* Reads all of it. -EBADMSG: it is damaged. */
int uns_store_verify(struct uns_store *store, struct uns_err *err);
/* All of it as a new file, as it is at one moment. -EEXIST. */
int uns_store_copy(struct uns_store *store, const char *path, struct uns_err *err);

#endif
