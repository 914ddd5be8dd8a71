/* The one part that sees everything else: which directory is a checkpoint, is it complete, what does
 * a view make of it, and is all that still true. Private to lib/session.
 *
 *   place     a directory of SOURCE as last examined: plain, or a checkpoint with its format and
 *             generation. Small, kept for good.
 *   snapshot  a checkpoint's catalog, its backing and the trees made of it so far. Large, an LRU,
 *             pinned by open files.
 *
 * One mutex (lock) guards both tables; it is never held across I/O. Work that others would repeat is
 * marked busy and waited for on `changed`.
 */
#ifndef UNS_SESSION_SESSION_H
#define UNS_SESSION_SESSION_H

#include <pthread.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"
#include "engine/engine.h"
#include "formats/format.h"
#include "io/source.h"
#include "model/tree.h"
#include "files/config.h"
#include "store/store.h"
#include "unshard.h"
#include "views/view.h"

enum { ERROR_LOG_LINES = 256 };

/* The facts about one checkpoint, without the facts: 0 = none. */
struct facts_seen {
	bool known;
	uint64_t revision; /* of the store, when they were read */
	uint64_t digest;
};

/* One view of one checkpoint: what supports() said. Kept with the place. */
struct verdict {
	struct verdict *next;
	const struct uns_view *view;
	uint64_t parameter;
	int code; /* 0 = can be served */
	struct uns_finding *why; /* why it cannot */
};

struct place {
	char *path; /* below SOURCE */

	/* Constant once known: a directory that has changed gets a new place. */
	bool known;
	const struct uns_format *format; /* NULL = a plain directory */
	uint64_t generation;             /* of a checkpoint: all files it may use, and the facts */
	uint64_t source_generation;      /* the files alone: identities */
	uint64_t own_generation;         /* those in its own directory alone */
	uint64_t source_bytes;           /* their sizes added up */
	struct uns_stat stat;            /* of the directory */

	/* Atomic: last change of any file or directory of it, wall clock. */
	int64_t newest_ns;
	/* Only by whoever examines it: what the store said of it. */
	struct facts_seen facts;

	/* Guarded by the session's lock. */
	unsigned refs;
	bool busy;          /* being examined */
	int64_t checked_ns; /* monotonic */
	bool building;           /* its snapshot is being built */
	struct snapshot *snap;   /* NULL = none in memory */
	struct verdict *verdict;
	struct uns_finding *open_why; /* what is wrong with the files that cannot even be opened, or NULL */
	bool finished; /* facts.finished */
	int64_t step, world_size;
	bool told; /* that it is damaged, in the log */
};

/* A view's tree of one snapshot, with the attributes of each of its files. */
struct shown {
	struct shown *next;
	const struct uns_view *view;
	uint64_t parameter;
	struct uns_vtree tree;
	struct vattr {
		uint32_t mode;
		int64_t mtime_ns;
	} *attr; /* parallel to tree.v; one more: tree.whole's */
};

struct snapshot {
	struct snapshot *newer, *older; /* LRU */
	struct place *place;            /* NULL once the place has moved on */
	unsigned refs;
	size_t bytes;

	struct uns_catalog *cat;
	struct uns_backing *backing;
	struct uns_root *model; /* the directory that the store's fact "model" names; or NULL */
	uint64_t memo_key;
	bool memo_allowed;
	uint64_t crcs_kept; /* atomic: uns_backing_crc_changes when they were last put into the store */

	/* Chosen while the snapshot is built: their files are part of the catalog. */
	struct uns_arena arena;
	struct uns_companion *borrowed;
	size_t n_borrowed, cap_borrowed;
	struct uns_span config;
	struct uns_config_facts config_facts;
	/* Found out when the first view that needs it is shown; only by whoever set `busy`. */
	bool ties_proven;
	const struct uns_tensor **tied;
	size_t n_tied;
	struct uns_finding *note; /* what was found out on the way: config taken from elsewhere, ties, .. */
	size_t n_notes, cap_notes;

	/* Of training_facts.c, when the first view that needs it is shown; likewise only by whoever is busy. */
	bool training_known, has_training, trainer_state_valid;
	struct uns_training training;

	bool crcs_busy; /* somebody finds out CRCs; guarded by the session's lock */
	bool busy;      /* a tree is being made */
	struct shown *shown;
};

struct model_dir {
	const char *run; /* below SOURCE; NULL = any */
	struct uns_root *root;
};

struct session_store {
	pthread_rwlock_t lock; /* held for reading while the handle is used, across I/O too */
	bool off;              /* store=none */
	bool own_place;        /* the default path: its directories may be made */
	const char *path;
	struct uns_store *handle; /* NULL = not opened yet, or it could not be */
	dev_t dev;
	ino_t ino;
	bool tried;
	int64_t retry_ns; /* monotonic */
	int problem_code; /* negative while there is no handle */
	char problem[UNS_ERR_TEXT + 256];
};

struct unshard {
	struct uns_arena arena; /* options */
	struct uns_root *root;
	const char *real_root; /* its absolute name without links: what facts are kept under */
	struct session_store store;
	uint64_t memo_salt, crc_salt;
	struct unshard_options opt;
	struct uns_format_options format_options;
	const char *mounted_at; /* absolute; NULL = not mounted */
	const char *hidden;     /* the mountpoint below SOURCE; NULL = elsewhere */
	const struct uns_view *only; /* -o view= */
	uint64_t only_parameter;
	struct model_dir *model;
	size_t n_model;
	const char *const *fact; /* -o fact=: "KEY=JSON", checked */
	size_t n_fact;
	int64_t settle_ns, recheck_ns;
	struct uns_engine *engine;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct uns_map places;
	struct snapshot *newest, *oldest;
	size_t snapshot_bytes;
	uint64_t n_opens, n_reads, n_read_bytes, n_errors; /* atomics */
	uint64_t n_opened, n_remembered; /* atomics: catalogs from metadata files, and from memos */

	char *error_line[ERROR_LOG_LINES]; /* a ring */
	size_t n_error_lines;
};

/* -- places.c -- */

/* What is at this directory of SOURCE: examined now, or at most recheck_ns ago. Returns a reference.
 * -ENOENT, -ENOTDIR. */
int place_get(struct unshard *u, const char *path, struct place **out, struct uns_err *err);
void place_put(struct unshard *u, struct place *place);
/* Look again at the next request: its files turned out to have changed. */
void place_suspect(struct unshard *u, struct place *place);
/* Something may still be writing: changed less than settle ago. */
bool place_unsettled(const struct unshard *u, const struct place *place);

/* -- snapshots.c -- */

/* The checkpoint's snapshot of the current generation: from memory, or built. Returns a reference.
 * Fails with what the format's open said. */
int snapshot_get(struct unshard *u, struct place *place, struct snapshot **out,
		 struct uns_err *err);
void snapshot_put(struct unshard *u, struct snapshot *snap);
/* Forget the place's snapshot (its generation has gone); open files keep theirs. Lock held. */
void snapshot_detach(struct unshard *u, struct place *place);
void snapshot_account(struct unshard *u, struct snapshot *snap);
/* The checkpoint's catalog from its own files. */
int snapshot_open_catalog(struct unshard *u, const struct place *place,
			  const struct uns_format_options *options, struct uns_catalog *cat,
			  struct uns_err *err);
int snapshot_note(struct snapshot *snap, const struct uns_finding *note, struct uns_err *err);

/* -- companions.c: fills snap->borrowed and config while the snapshot is built -- */
int companions_choose(struct unshard *u, struct snapshot *snap, const char *path,
		      struct uns_err *err);
/* -- ties.c: fills snap->tied; the snapshot is busy -- */
int ties_prove(struct snapshot *snap, struct uns_err *err);

/* -- training_facts.c -- */

/* The checkpoints beside one, found by their names: what may tell about the same training. */
struct siblings {
	const char *run; /* the directory of all of them; NULL = outside SOURCE */
	bool numbered;   /* this one is checkpoint-OWN */
	unsigned long long own, *number; /* all numbers, descending, OWN among them */
	size_t n;
	struct {
		const char *state; /* its trainer_state.json, which may not exist; NULL = no memory */
		unsigned long long number;
	} near[8]; /* the nearest later ones, then the nearest earlier ones */
	size_t n_near;
};

/* In the arena. Nothing (and 0) where there can be none. */
int training_siblings(struct unshard *u, struct uns_arena *arena, const char *path,
		      struct siblings *out, struct uns_err *err);
/* The checkpoint's own trainer_state.json looks whole: then nothing beside it is asked. Reads three
 * bytes. */
bool training_state_whole(struct unshard *u, struct uns_arena *arena, const char *path);
/* Fills snap->training, has_training and trainer_state_valid; the snapshot is busy. */
int training_collect(struct unshard *u, struct snapshot *snap, const char *path,
		     struct uns_err *err);
/* Is this a KEY=VALUE that -o fact= takes? */
int training_check_option(const char *text, struct uns_err *err);

/* -- shows.c: one view of one checkpoint -- */

enum show_state { SHOW_OK, SHOW_SAVING, SHOW_DAMAGED, SHOW_NONE };

const char *show_state_text(enum show_state state);
/* Whether and how the view shows this checkpoint. Unless SHOW_OK `why` receives the reason, as a finding where
 * it keeps them. Fails with what is wrong with the moment, in `why` too: that is no answer. */
int show_state_of(struct unshard *u, struct place *place, const struct uns_view *view,
		  uint64_t parameter, enum show_state *out, struct uns_err *why);
/* The view's tree; belongs to the snapshot. A damaged checkpoint's tree is its UNSHARD_PROBLEM.txt. */
int show_tree(struct unshard *u, struct place *place, struct snapshot *snap,
	      const struct uns_view *view, uint64_t parameter, const struct shown **out,
	      struct uns_err *err);

/* -- views by name -- */
const struct uns_view *view_find(const char *name, size_t len, uint64_t *parameter);

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
int info_json(struct unshard *u, struct place *place, bool tensors, const char *usage_path,
	      struct uns_text *out, struct uns_err *err);
/* All that is known to be wrong with a checkpoint: its catalog's own findings, then what views found out. In
 * `arena`. */
int info_text(struct unshard *u, struct place *place, const struct uns_view *view,
	      uint64_t parameter, const char *name, struct uns_text *out, struct uns_err *err);

/* -- reasons.c -- */

/* All that is known to be wrong with a checkpoint: its catalog's own findings, then what only views found
 * out; or why it cannot be opened. */
struct reasons {
	struct uns_arena arena;
	struct reason {
		const struct uns_finding *finding;
		const char *view; /* the view that found it out; NULL = none did */
		bool serious;     /* keeps something from being served */
	} * v;
	size_t n, cap;
	size_t n_serious; /* of these, and of views that are not shown for one of them */
	/* Something could not be read just now (code != 0), which says nothing about the files. */
	struct uns_err moment;
};
/* Fails only when memory is out. */
int reasons_find(struct unshard *u, struct place *place, struct reasons *out, struct uns_err *err);
void reasons_fini(struct reasons *reasons);
/* "SENTENCE", "weights: SENTENCE" */
void reason_print(const struct reason *reason, struct uns_text *out);
/* Why a snapshot could not be had, as a finding of that moment: to be told, not to be remembered. In the
 * arena; NULL = out of memory. */
const struct uns_finding *reason_of_failure(const struct place *place, const struct uns_err *why,
					    struct uns_arena *arena);
/* As unshard.h hands it out; returns what the visitor does. general_advice: where there is no other. */
int finding_visit(const struct reason *reason, const char *path, enum uns_severity severity,
		  bool general_advice, unshard_check_visit *visit, void *ctx);
/* A directory that cannot be listed or looked at: a walk over many names it and goes on. NULL = out of memory,
 * or the walk must end: `why` is no fault of the directory. In the arena. */
const struct uns_finding *reason_of_directory(const char *path, const struct unshard *u,
					      const struct uns_err *why, struct uns_arena *arena);

/* -- meta.c: the store; everything goes on without one -- */
int meta_init(struct unshard *u, const char *store, struct uns_err *err);
void meta_fini(struct unshard *u);
/* The store, opened if need be; give it back. NULL = there is none, and why. */
struct uns_store *store_hold(struct unshard *u, struct uns_err *err);
void store_release(struct unshard *u);
/* A line on what is wrong with it, or nothing. */
void store_problem(struct unshard *u, struct uns_text *out);
/* Facts about a path below SOURCE: its own and those of directories above it, the nearest of a key. */
int meta_facts(struct unshard *u, const char *path, struct uns_arena *arena,
	       struct uns_store_fact **out, size_t *n, struct uns_err *err);
/* Bring `seen` up to date; it stays as it is while the store does not answer. */
void meta_digest(struct unshard *u, const char *path, struct facts_seen *seen);

/* -- units.c: layouts of FSDP1's flat units, which no checkpoint holds -- */

#define UNITS_FACT "fsdp_units"

/* The format's options with what the store says for this checkpoint; texts live in the arena. */
struct uns_format_options units_options(struct unshard *u, const struct place *place,
					struct uns_arena *arena);
/* An imported layout, {"units": ..}, for the checkpoint at `path`: it must fit, and from then on belongs
 * to the files that are there now. For a run's directory it is compared with each checkpoint when that
 * is read. */
int units_bind(struct unshard *u, const char *path, struct uns_arena *arena,
	       struct uns_store_fact *fact, struct uns_err *err);
/* -o assume= */
int units_assume(struct unshard *u, const char *what, struct uns_err *err);

/* -- memo.c -- */
void memo_init(struct unshard *u, const struct unshard_options *o);
/* The catalog as it was when it was last opened; negative when that is not known. */
int memo_load_catalog(struct unshard *u, const struct place *place, struct uns_catalog **out);
/* Its files are old enough for their times to show any change from now on: ask before reading them. */
bool memo_allowed(const struct place *place);
void memo_save_catalog(struct unshard *u, const struct place *place,
		       const struct uns_catalog *cat);
void memo_load_crcs(struct unshard *u, const struct place *place, struct snapshot *snap);
/* If there are new ones. Writes: no lock may be held. */
void memo_save_crcs(struct unshard *u, struct snapshot *snap);

/* -- crcs.c -- */

/* All CRCs that a layout of this snapshot shows, and into the store with them. -EINTR when asked to
 * stop. */
int crcs_find(struct unshard *u, struct snapshot *snap, const struct uns_layout *layout,
	      const struct uns_stop *stop, struct uns_err *err);

/* -- session.c -- */
void session_error(struct unshard *u, const struct uns_err *err, const char *where);
int64_t session_now_ns(void); /* monotonic */
int give_error(struct unshard_error *out, const struct uns_err *err, int code);
/* A directory entry that the tree leaves out: the mountpoint, a link that may not be followed. */
bool session_hides(const struct unshard *u, const char *path);

#endif
