/* Snapshots in memory: built when asked for, shared, evicted oldest first when they are not held. Pinned
 * by open files only. */
#ifndef UNS_SESSION_SNAPSHOTS_H
#define UNS_SESSION_SNAPSHOTS_H

#include "seal/place.h"
#include "session/contents_kept.h"
#include "session/dir_records.h"
#include "session/snapshot.h"
#include "store/catalog_memo.h"

/* Memory is given back when catalogs of so many bytes were made. */
enum { SNAPSHOTS_TRIM_BYTES = 1 << 20 };

struct shared_memos;

struct snapshot_cache {
	const struct uns_root *root;
	struct uns_engine *engine;
	const struct uns_format_options *format;
	const struct model_dirs *models;
	const char *strip; /* -o strip=, or NULL */
	bool keep_names;   /* -o names=memory */
	const struct mean_options *mean;
	const struct uns_adapter_choice *adapters; /* -o adapters= */
	struct store_link *store;
	struct uns_seal_place seals;
	const char *hidden; /* a path below SOURCE that is never looked at; NULL = none */
	struct memo *memo;
	struct shared_memos *memos;
	struct record_table *records;
	size_t budget_bytes; /* of snapshots and contents */
	bool trim; /* unshard_options.trim_memory */
	size_t untrimmed_bytes; /* atomic; of catalogs that were made since memory was given back; SNAPSHOTS_TRIM_BYTES
				   at first */

	/* The records' own. */
	pthread_mutex_t *lock;
	pthread_cond_t *changed;
	struct snapshot_list by_use; /* the oldest use first */
	size_t bytes;
	struct contents_kept contents;
};

/* The checkpoint's snapshot of the current generation: from memory, or built. Returns a reference.
 * Fails as the format's open failed; -ESTALE when the checkpoint has changed since the record was
 * examined. */
int snapshots_get(struct snapshot_cache *c, struct dir_record *record, struct snapshot **out, struct uns_err *err);
void snapshots_put(struct snapshot_cache *c, struct snapshot *snap); /* NULL is allowed */
/* Forget those that were not used for a minute, but for an eighth of budget_bytes and the one that was used last. */
void snapshots_rest(struct snapshot_cache *c);
/* The generation of all that the checkpoint's views may be made of: it is opened for that, if it never was. Of one that
 * cannot be opened just now, what is known so far. */
uint64_t snapshots_generation(struct snapshot_cache *c, struct dir_record *record);
/* Forget the record's snapshot and contents (its generation has gone); open files keep theirs. For record_table.forget:
 * ctx is the cache. */
void snapshots_forget(void *ctx, struct dir_record *record);
/* It has grown. Lock held. */
void snapshots_account(struct snapshot_cache *c, struct snapshot *snap);
/* Find out once what `learned` is of: true = now, and snapshots_learned is to be called. */
bool snapshots_learn(struct snapshot_cache *c, struct learned *learned);
void snapshots_learned(struct snapshot_cache *c, struct snapshot *snap, struct learned *learned, bool known);

/* All CRCs that a layout of this snapshot shows, and into the store with them. -EINTR when asked to
 * stop. */
int snapshots_find_crcs(const struct snapshot_cache *c, struct snapshot *snap, const struct uns_layout *layout,
			const struct uns_stop *stop, struct uns_err *err);
/* New CRCs go into the store. */
void snapshots_save_crcs(const struct snapshot_cache *c, struct snapshot *snap);

#endif
