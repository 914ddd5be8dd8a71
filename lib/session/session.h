/* A session: one SOURCE shown as a tree. Its parts each have a header of their own and see nothing of
 * struct unshard; what needs several of them stands on this one: how a view shows a checkpoint (shows.h),
 * what a name of the tree means (spots.h), nodes, listings and files, the texts of .unshard/ (info.h).
 *
 *   options.h    what unshard_open was given
 *   places.h     what each directory of SOURCE is
 *   snapshots.h  what is made of checkpoints, an LRU
 *   errors.h     reads that failed
 *   store/store_link.h, store/catalog_memo.h  the metadata store, and what is kept in it
 *
 * One mutex (lock) guards places and snapshots. It is never held across I/O, and nothing is freed under
 * it; work that others would repeat is marked busy and waited for on `changed`. */
#ifndef UNS_SESSION_SESSION_H
#define UNS_SESSION_SESSION_H

#include "base/log.h"
#include "api/errors.h"
#include "api/options.h"
#include "session/places.h"
#include "session/snapshots.h"
#include "unshard.h"

struct unshard {
	struct uns_arena arena; /* options */
	struct uns_root *root;
	const char *real_root; /* its absolute name without links */
	struct uns_log log;
	struct session_options opt;
	struct store_link store;
	struct memo memo;
	struct uns_engine *engine;
	struct uns_ring errors;
	uint64_t n_opens, n_reads, n_read_bytes, n_errors; /* atomics */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct place_table places;
	struct snapshot_cache snapshots;
};

/* -- the parts, for those who have a session -- */

static inline int place_get(struct unshard *u, const char *path, struct place **out,
			    struct uns_err *err)
{
	return places_get(&u->places, path, out, err);
}

static inline void place_put(struct unshard *u, struct place *place)
{
	places_put(&u->places, place);
}

static inline bool place_unsettled(const struct unshard *u, const struct place *place)
{
	return places_unsettled(&u->places, place);
}

/* The file that is written last is there. */
static inline bool place_finished(struct unshard *u, const struct place *place)
{
	bool finished;

	pthread_mutex_lock(&u->lock);
	finished = place->finished;
	pthread_mutex_unlock(&u->lock);
	return finished;
}

/* Somebody may be writing it: it changed a moment ago, and nothing says that the save has ended, or shards are
 * newer than what does. */
static inline bool place_saving(struct unshard *u, const struct place *place)
{
	bool saving;

	pthread_mutex_lock(&u->lock);
	saving = !place->finished || place->overwritten;
	pthread_mutex_unlock(&u->lock);
	return saving && place_unsettled(u, place);
}

/* The weights may be of two saves at this moment. */
static inline bool place_weights_change(struct unshard *u, const struct place *place)
{
	bool change;

	pthread_mutex_lock(&u->lock);
	change = place->weights_overwritten;
	pthread_mutex_unlock(&u->lock);
	return change && place_unsettled(u, place);
}

static inline int snapshot_get(struct unshard *u, struct place *place, struct snapshot **out,
			       struct uns_err *err)
{
	return snapshots_get(&u->snapshots, place, out, err);
}

static inline void snapshot_put(struct unshard *u, struct snapshot *snap)
{
	snapshots_put(&u->snapshots, snap);
}

/* A directory entry that the tree leaves out: the mountpoint, a link that may not be followed. */
static inline bool session_hides(const struct unshard *u, const char *path)
{
	return places_hide(&u->places, path);
}

/* An entry of SOURCE that is a checkpoint, or that checkpoints may lie below: for walks (place_get gives -ENOTDIR for
 * a file that is none). */
static inline bool session_walks_into(const struct unshard *u, const char *path, enum uns_kind kind)
{
	return !session_hides(u, path) &&
	       (kind == UNS_KIND_DIR || (kind == UNS_KIND_FILE && places_may_be_file(path)));
}

#endif
