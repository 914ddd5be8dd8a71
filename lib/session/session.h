/* A session: one SOURCE shown as a tree. Its parts each have a header of their own and see nothing of
 * struct unshard; what needs several of them is below: which view shows a checkpoint how, what a path of
 * the tree means, the texts of .unshard/.
 *
 *   options.h     what unshard_open was given
 *   store_link.h  the metadata store; memo.h: what is kept in it that can be found out again
 *   places.h      what each directory of SOURCE is
 *   snapshots.h   what is made of checkpoints, an LRU
 *   errors.h      reads that failed
 *
 * One mutex (lock) guards places and snapshots. It is never held across I/O, and nothing is freed under
 * it; work that others would repeat is marked busy and waited for on `changed`. */
#ifndef UNS_SESSION_SESSION_H
#define UNS_SESSION_SESSION_H

#include "session/errors.h"
#include "session/options.h"
#include "session/places.h"
#include "session/snapshots.h"
#include "unshard.h"

struct unshard {
	struct uns_arena arena; /* options */
	struct uns_root *root;
	const char *real_root; /* its absolute name without links */
	struct session_options opt;
	struct store_link store;
	struct memo memo;
	struct uns_engine *engine;
	struct errors errors;
	uint64_t n_opens, n_reads, n_read_bytes; /* atomics */

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

/* -- shows.c: one view of one checkpoint -- */

enum show_state { SHOW_OK, SHOW_SAVING, SHOW_DAMAGED, SHOW_NONE };

const char *show_state_text(enum show_state state);
/* Whether and how the view shows this checkpoint. `why` receives the sentence unless SHOW_OK. */
int show_state_of(struct unshard *u, struct place *place, const struct uns_view *view,
		  uint64_t parameter, enum show_state *out, struct uns_err *why);
/* The view's tree; belongs to the snapshot. A damaged checkpoint's tree is its UNSHARD_PROBLEM.txt. */
int show_tree(struct unshard *u, struct place *place, struct snapshot *snap,
	      const struct uns_view *view, uint64_t parameter, const struct shown **out,
	      struct uns_err *err);

/* -- walk.c: what a path of the tree means -- */

enum spot_kind {
	SPOT_ROOT,      /* the mount's root, when it lists the views */
	SPOT_ROOT_INFO, /* .unshard or a file in it; `inside` is its name, "" = the directory */
	SPOT_SOURCE,    /* a directory, file or link of SOURCE outside checkpoints */
	SPOT_SHOWN,     /* a checkpoint directory (inside = ""), or a directory or file in it */
	SPOT_INFO,      /* a checkpoint's .unshard: `inside` as above */
};

struct spot {
	enum spot_kind kind;
	struct uns_arena arena;
	const struct uns_view *view;
	uint64_t parameter;
	const char *path;   /* below SOURCE */
	struct uns_stat stat; /* SPOT_SOURCE */
	const char *inside; /* below the checkpoint */
	struct place *place;
	struct snapshot *snap;
	const struct shown *shown;
	const struct uns_vfile *file; /* SPOT_SHOWN: NULL = a directory */
	bool as_file; /* reached by the name of the checkpoint's one file (forms.c) */
	struct uns_text text;         /* info files: their content */
	uint64_t ino;
};

int spot_find(struct unshard *u, const char *path, struct spot *out, struct uns_err *err);
void spot_fini(struct unshard *u, struct spot *spot);
void spot_stat(const struct spot *spot, struct unshard_stat *out);
/* The inode number of a name below a spot, without looking further. */
uint64_t ino_of(const struct uns_view *view, uint64_t parameter, const char *path,
		uint64_t generation, const char *inside);

/* -- forms.c: checkpoints that are one file in some views -- */

struct form_names {
	const char *file, *dir;
	bool dir_is_listed;
};
bool forms_has_file(const struct uns_view *view, const struct place *place);
/* Only for one that has a file. */
int forms_names(struct unshard *u, const struct uns_view *view, const struct place *place,
		struct uns_arena *arena, struct form_names *out, struct uns_err *err);
/* 1 = `name` of directory `dir` (of SOURCE) is such a checkpoint: its path, place (a reference) and
 * as_file are set in `spot`. 0 = it is not. */
int forms_find(struct unshard *u, struct spot *spot, const char *dir, const char *name,
	       struct uns_err *err);

/* -- info.c -- */
extern const char *const root_info_names[]; /* NULL-terminated */
extern const char *const info_names[];
int root_info_text(struct unshard *u, const char *name, struct uns_text *out);
/* usage_path: goes into the lines to write, NULL = the path below the mount. */
int info_json(struct unshard *u, struct place *place, const char *what, const char *usage_path,
	      struct uns_text *out, struct uns_err *err);
/* Sentences, one a line; *n_serious counts those that keep something from being served. */
int problems_text(struct unshard *u, struct place *place, struct uns_text *out, size_t *n_serious,
		  struct uns_err *err);
int info_text(struct unshard *u, struct place *place, const struct uns_view *view,
	      uint64_t parameter, const char *name, struct uns_text *out, struct uns_err *err);

/* -- crcs.c -- */

/* All CRCs that a layout of this snapshot shows, and into the store with them. -EINTR when asked to
 * stop. */
int crcs_find(struct unshard *u, struct snapshot *snap, const struct uns_layout *layout,
	      const struct uns_stop *stop, struct uns_err *err);

#endif
