/* The directory record: what a directory of SOURCE is, as last examined: plain, or a checkpoint with its
 * format and generation. Small, and forgotten when its name has gone from the directory above, which shows at the next
 * look at that one. What is made of a checkpoint is in snapshots.h. */
#ifndef UNS_SESSION_DIR_RECORDS_H
#define UNS_SESSION_DIR_RECORDS_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/map.h"
#include "examine/examine.h"
#include "session/devices.h"
#include "views/view.h"

struct snapshot;
struct contents;

/* One view of one checkpoint: supports()'s answer. Kept with the record. */
struct verdict {
	struct verdict *next;
	const struct uns_view *view;
	uint64_t parameter;
	int code; /* 0 = can be served */
	struct uns_finding *why; /* why it cannot; NULL = it can */
};

struct dir_record {
	char *path; /* below SOURCE */
	/* It is for views that are made of so many checkpoints of a run, this one and others before it, which are
	 * among its inputs; 0 = it is what the path is by itself. */
	unsigned n_averaged;
	char *key; /* of path and n_averaged, in the table */
	struct dir_record *next; /* of those that are forgotten together */

	/* Constant once known: a directory that has changed gets a new record. But `at_ns`, `facts` and `dirs` are of
	 * the last examination, and what a checkpoint was made of, is.inputs and is.generation, is complete only once
	 * it was opened. These five are guarded by the table's lock. */
	bool known;
	struct examined is;
	bool opened;
	bool young; /* a checkpoint that was unsettled when it became known */
	int64_t changed_ns; /* monotonic: when it took the place of another record; 0 = it is the first of its path */

	int64_t newest_ns; /* atomic: is.newest_ns of the last examination */

	/* Guarded by the table's lock. */
	unsigned refs;
	bool busy; /* being examined */
	bool stale; /* what was made of it is not to be used any more */
	bool suspect; /* until all of it is looked at again */
	bool replaced; /* the table has another, or none, for this path */
	int64_t itself_ns; /* monotonic: when its name was seen to be a directory, not a link to one */
	int64_t checked_ns; /* monotonic: when all of it was looked at */
	int64_t glanced_ns; /* monotonic: when all of it was, or its directories alone */
	int64_t listing_ns; /* how long it took to list the directory around it: so long glances hold (records_listed)
			     */
	struct uns_capture *capture; /* what was seen when it was examined, until it is opened; or NULL */
	bool capture_taken;

	/* The same lock; of snapshots.c and shows.c. */
	bool building; /* its snapshot is being built */
	bool pages_forgotten; /* of its files, before its first snapshot was built; the builder's */
	bool reopened; /* it was opened again, because its snapshot was evicted */
	struct snapshot *snap; /* NULL = none in memory */
	struct verdict *verdict;
	struct contents *contents; /* what is kept of them (contents_kept.h) */
	TAILQ_ENTRY(dir_record) by_use; /* while there are any */
	int64_t contents_used_ns;
	struct uns_finding *open_why; /* what keeps its files from being opened at all, or NULL */
	bool finished, overwritten, weights_overwritten; /* of the summary */
	int64_t step, world_size;
	bool told; /* that it is damaged, in the log */
	/* 1 + the enum unshard_seal_state that it stays in until then (monotonic; INT64_MAX: as long as it is this
	 * record); 0 = not known. */
	unsigned seal;
	int64_t seal_until_ns;
	bool assumed_told; /* what is assumed about its training, in the log */
};

TAILQ_HEAD(records_by_use, dir_record);

/* The store has facts about it, or about its run. */
static inline bool record_has_facts(const struct dir_record *record)
{
	return record->is.facts_digest != 0;
}

struct record_table {
	const struct uns_root *root;
	const char *hidden; /* a path below SOURCE that is never looked at; NULL = none */
	const char *const *mounts; /* paths below SOURCE at which unshard's own mounts were when it was opened */
	size_t n_mounts;
	struct uns_kept_lists *lists; /* of the directories around what is examined */
	struct store_link *store;
	const char *const *adapters; /* as struct uns_directory has them */
	int64_t settle_ns, recheck_ns;
	/* Called without the lock, after a record was replaced: let go of what was made of it. */
	void (*forget)(void *ctx, struct dir_record *record);
	void *ctx;

	/* Shared with the snapshots: never held across I/O, and nothing is freed under it. Examining is
	 * marked busy and waited for on `changed`. */
	pthread_mutex_t *lock;
	pthread_cond_t *changed;
	struct uns_map map; /* key -> record */
	struct devices devices;
};

/* How closely to look, where each look is a request to a server, at a checkpoint that rests: of which nothing has
 * changed for an hour. All others are looked at in full. */
enum look {
	LOOK_FULL,  /* at each of its files: for what opens or reads one */
	LOOK_LISTS, /* for what lists its files: by its directories, if it was looked at in full within LISTS_S */
	LOOK_NAMES, /* for what lists or looks up its name: by its directories alone */
};

enum { LISTS_S = 300 };

/* What is at this directory of SOURCE, or a file that is a checkpoint: examined now, or at most recheck_ns ago.
 * Returns a reference. -ENOENT; -ENOTDIR: any other file. */
int records_get(struct record_table *t, const char *path, struct dir_record **out, struct uns_err *err);
void records_put(struct record_table *t, struct dir_record *record); /* NULL is allowed */
/* The same with a record of its own for views that are made of n checkpoints. */
int records_get_averaged(struct record_table *t, const char *path, unsigned n, struct dir_record **out,
			 struct uns_err *err);
/* The same for what opens nothing. By its directories it is not seen that a file of it was written over. */
int records_look(struct record_table *t, const char *path, enum look look, struct dir_record **out,
		 struct uns_err *err);
/* A reference to what records_look would give without a look, where the path's last name is no link. NULL = that takes
 * a look. */
struct dir_record *records_known(struct record_table *t, const char *path, enum look look);
/* To list the directory `dir`, which has these entries, took so long. A program that lists a run, and then each
 * checkpoint in it, comes to the last one after about as long: until then, what was seen by the directories of one that
 * rests holds.
 */
void records_listed(struct record_table *t, const char *dir, const struct uns_listing *list, int64_t took_ns);
void records_seen_itself(struct record_table *t, struct dir_record *record);
/* Look again at the next request, because something could not be read. `stale`: what was made of its files is no longer
 * true, even if nothing else shows that they changed. */
void records_suspect(struct record_table *t, struct dir_record *record, bool stale);
/* A file of a plain directory changed at `ctime_ns`. If the directory was examined before that, it may be a checkpoint
 * by now: it is looked at again at the next request, and this is true. Costs a stat of the directory if the file
 * changed after the directory did. */
bool records_outdated(struct record_table *t, const char *path, int64_t ctime_ns);
/* Forget all; no other reference may be held. */
void records_fini(struct record_table *t);

/* What the record's generation was made of: as it was seen when it was examined, or, to open it
 * again, looked at once more: -ESTALE when it has changed by now. */
int records_capture(struct record_table *t, struct dir_record *record, struct uns_capture **out, struct uns_err *err);

/* Which file system is waited for, if it does not answer, by what asks for `path`; `all`: for all names in that
 * directory. */
uint64_t records_device(struct record_table *t, const char *path, bool all);

/* Its generation; *opened: it is complete. */
uint64_t records_generation(struct record_table *t, struct dir_record *record, bool *opened);
/* The checkpoint was opened, for which all of *inputs was looked at. They become the record's; in their place are those
 * that it had, which the caller gives back without the lock. Lock held. -ESTALE: it is not what it was when it was
 * opened first. */
int records_opened(struct dir_record *record, struct uns_inputs **inputs, struct uns_err *err);

/* Something may still be writing: changed less than settle ago. */
bool records_unsettled(const struct record_table *t, const struct dir_record *record);
/* The same of one time, wall clock. */
bool records_changed_lately(const struct record_table *t, int64_t newest_ns);
/* It may become a checkpoint, and is not shown until then: begun and unsettled. */
bool records_in_the_making(const struct record_table *t, const struct dir_record *record);
/* A path that the tree leaves out. */
bool records_hide(const struct record_table *t, const char *path);

#endif
