/* What a name of the tree means. First comes a view, then SOURCE's own directories, and inside a checkpoint
 * the view's files. A spot is a name as it is right now: it holds what was looked up, and is short-lived;
 * what lasts is its key (nodes.h). */
#ifndef UNS_PATHS_SPOTS_H
#define UNS_PATHS_SPOTS_H

#include "base/text.h"
#include "session/session.h"

enum spot_kind {
	SPOT_ROOT,      /* the mount's root, when it lists the views */
	SPOT_ROOT_INFO, /* .unshard or a file in it; `inside` is its name, "" = the directory */
	SPOT_SOURCE,    /* a directory, file or link of SOURCE outside checkpoints */
	SPOT_SHOWN,     /* a checkpoint directory (inside = ""), or a directory or file in it */
	SPOT_INFO,      /* a checkpoint's .unshard: `inside` as above */
	SPOT_MARK,      /* the file that names a run's last checkpoint (run_mark.h), made */
	SPOT_NEWEST,    /* the link to a run's newest checkpoint (newest.h), made; `inside` is where it leads */
};

struct spot_key {
	enum spot_kind kind;
	bool top;       /* the tree's root, whatever it is */
	bool directory; /* SPOT_SOURCE */
	bool as_file;   /* reached by the name of the checkpoint's one file (forms.h) */
	const struct uns_view *view;
	uint64_t parameter;
	const char *path;   /* below SOURCE */
	const char *inside; /* below the checkpoint; SPOT_NEWEST: the name beside the link */
};

struct spot {
	struct spot_key key;
	struct uns_arena arena;
	enum look look; /* for what the next step is */
	struct dir_record *record;  /* of a directory of SOURCE, and of everything in a checkpoint */
	struct uns_stat stat; /* SPOT_SOURCE that is no directory; SPOT_MARK: SOURCE's own mark */
	struct contents *contents; /* SPOT_SHOWN, once spot_load was called */
	bool is_file;              /* SPOT_SHOWN: else a directory */
	struct contents_file file; /* that file */
	struct uns_text text;         /* info files and marks: their content */
	struct uns_access access;     /* info files */
	uint64_t ino;
};

int spot_top(struct unshard *u, struct spot *out, struct uns_err *err);
/* `name` in directory `dir` is the tree's own .unshard. That one needs nothing of SOURCE, which may hang: neither does
 * spot_root_info, which makes it of a zeroed spot or of one that holds nothing. A name of SOURCE wins, if it was there
 * when SOURCE was opened; then ours is ".unshard.unshard". */
bool spot_is_root_info(const struct unshard *u, const struct spot_key *dir, const char *name);
int spot_root_info(struct unshard *u, struct spot *spot, struct uns_err *err);
/* What is at the key now; its texts are copied. -ESTALE when no such thing can be there any more. */
int spot_of(struct unshard *u, const struct spot_key *key, enum look look, struct spot *out, struct uns_err *err);
/* Move to the child of that name. -ENOENT, -ENOTDIR; then the spot is only good for spot_fini. */
int spot_enter(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err);
/* Whether the view shows it at all: to be asked of what is returned, not of what is passed on the way. */
int spot_check(struct unshard *u, struct spot *spot, struct uns_err *err);
/* All of it, for a path of the tree. */
int spot_find(struct unshard *u, const char *path, struct spot *out, struct uns_err *err);
void spot_fini(struct unshard *u, struct spot *spot);

/* spot->contents, for a directory of a checkpoint. */
int spot_load(struct unshard *u, struct spot *spot, struct uns_err *err);
/* What a file of a checkpoint is made of. *snap has a reference, to which *file belongs. -ESTALE. */
int spot_open(struct unshard *u, const struct spot *spot, struct snapshot **snap, const struct uns_vfile **file,
	      struct uns_err *err);
bool spot_is_dir(const struct spot *spot);
bool spot_is_link(const struct spot *spot);
/* The view's name as the tree spells it ("weights-bf16"); name: the path in the tree. In the arena; NULL = none. */
const char *spot_view(struct unshard *u, const struct spot *spot, const char *name, struct uns_arena *arena);
/* Of the checkpoint, or of the file of SOURCE. False = it has none. */
bool spot_generation(struct unshard *u, const struct spot *spot, uint64_t *out);
void spot_stat(struct unshard *u, const struct spot *spot, struct unshard_stat *out);
/* The inode number of a name in the spot's directory of a checkpoint, without looking further. */
uint64_t spot_ino_inside(struct unshard *u, const struct spot *spot, const char *inside);

#endif
