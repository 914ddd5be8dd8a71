/* A session: one SOURCE, what each of its checkpoints is at this moment, and what its views show of it. Its parts each
 * have a header of their own and see nothing of struct unshard; what needs several of them builds on this one: how a
 * view shows a checkpoint (shows.h), what is wrong with one (reasons.h). What a path of the mount means: lib/paths.
 *
 *   options.h      what unshard_open was given
 *   dir_records.h  what each directory of SOURCE is
 *   snapshots.h    what is made of checkpoints, an LRU
 *   errors.h       reads that failed
 *   store/store_link.h, store/catalog_memo.h  the metadata store, and what is kept in it
 *
 * One mutex (lock) guards records and snapshots. It is never held across I/O, and nothing is freed under
 * it; work that others would repeat is marked busy and waited for on `changed`. */
#ifndef UNS_SESSION_SESSION_H
#define UNS_SESSION_SESSION_H

#include "base/cohort.h"
#include "base/log.h"
#include "api/errors.h"
#include "api/options.h"
#include "session/dir_records.h"
#include "session/shared_memos.h"
#include "session/snapshots.h"
#include "session/usage.h"
#include "session/ways_kept.h"
#include "unshard.h"

/* What is known of a checkpoint, or of the session, is in a directory of this name. */
#define SESSION_INFO_DIR ".unshard"

struct unshard {
	struct uns_arena arena; /* options */
	struct uns_root *root;
	const char *real_root; /* its absolute name without links */
	struct uns_stat top;   /* SOURCE as it was when it was opened: enough for what must not wait for it */
	bool has_info_name;    /* the tree's root shows SOURCE, and it has ".unshard" */
	struct uns_log log;
	struct session_options opt;
	struct store_link store;
	struct ways_kept ways; /* set before the engine is opened */
	struct memo memo;
	struct shared_memos memos;
	struct uns_engine *engine;
	struct uns_ring errors;
	uint64_t n_opens, n_reads, n_read_bytes, n_errors; /* atomics */
	struct usage usage;
	/* Atomics: seals made and bytes read for them; what the last unshard_seal found. */
	uint64_t n_seals, seal_read_bytes, n_seals_differ, n_not_sealed;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct uns_kept_lists lists;
	struct record_table records;
	struct snapshot_cache snapshots;
	struct uns_cohorts directories; /* their nodes (lib/paths/nodes.c) */
};

/* -- the parts, for code that has a session -- */

static inline int record_get(struct unshard *u, const char *path, struct dir_record **out, struct uns_err *err)
{
	return records_get(&u->records, path, out, err);
}

static inline int record_look(struct unshard *u, const char *path, enum look look, struct dir_record **out,
			      struct uns_err *err)
{
	return records_look(&u->records, path, look, out, err);
}

/* What the view is made of at that path. */
static inline int record_get_for(struct unshard *u, const char *path, const struct uns_view *view, uint64_t parameter,
				 struct dir_record **out, struct uns_err *err)
{
	return records_get_averaged(&u->records, path, view && view->of_run ? (unsigned)parameter : 0, out, err);
}

/* One more reference. */
static inline void record_ref(struct unshard *u, struct dir_record *record)
{
	pthread_mutex_lock(&u->lock);
	record->refs++;
	pthread_mutex_unlock(&u->lock);
}

static inline void record_put(struct unshard *u, struct dir_record *record)
{
	records_put(&u->records, record);
}

static inline bool record_unsettled(const struct unshard *u, const struct dir_record *record)
{
	return records_unsettled(&u->records, record);
}

/* The file that is written last is there. */
static inline bool record_finished(struct unshard *u, const struct dir_record *record)
{
	bool finished;

	pthread_mutex_lock(&u->lock);
	finished = record->finished;
	pthread_mutex_unlock(&u->lock);
	return finished;
}

/* Files come there in any order, as a checkpoint's do that is uploaded: the one that a writer writes last
 * proves nothing. */
static inline bool session_is_remote(const struct unshard *u)
{
	return uns_root_is_remote(u->root);
}

/* It may be written at this moment: it changed a moment ago, and nothing shows that the save has ended, or shards are
 * newer than what does. */
static inline bool record_saving(struct unshard *u, const struct dir_record *record)
{
	bool saving;

	pthread_mutex_lock(&u->lock);
	saving = !record->finished || record->overwritten || session_is_remote(u);
	pthread_mutex_unlock(&u->lock);
	return saving && record_unsettled(u, record);
}

/* The weights may be of two saves at this moment. */
static inline bool record_weights_change(struct unshard *u, const struct dir_record *record)
{
	bool change;

	pthread_mutex_lock(&u->lock);
	change = record->weights_overwritten || session_is_remote(u);
	pthread_mutex_unlock(&u->lock);
	return change && record_unsettled(u, record);
}

static inline int snapshot_get(struct unshard *u, struct dir_record *record, struct snapshot **out, struct uns_err *err)
{
	return snapshots_get(&u->snapshots, record, out, err);
}

static inline void snapshot_put(struct unshard *u, struct snapshot *snap)
{
	snapshots_put(&u->snapshots, snap);
}

/* A directory entry that the tree leaves out: the mountpoint, a link that may not be followed. */
static inline bool session_hides(const struct unshard *u, const char *path)
{
	return records_hide(&u->records, path);
}

/* An entry of SOURCE that is a checkpoint, or that checkpoints may lie below: for walks (record_get gives -ENOTDIR for
 * a file that is none). */
static inline bool session_walks_into(const struct unshard *u, const char *path, enum uns_kind kind)
{
	return !session_hides(u, path) &&
	       (kind == UNS_KIND_DIR || (kind == UNS_KIND_FILE && examine_may_be_file(path)));
}

#endif
