/* A sound copy of a checkpoint or a run where one can be derived: what is planned, file by file.
 * Nothing is written before the plan is whole. Private to lib/repair. */
#ifndef UNS_REPAIR_REPAIRING_H
#define UNS_REPAIR_REPAIRING_H

#include "session/walk.h"

/* A torch file again, with storages of another type. */
struct repair_torch {
	const char *path; /* below SOURCE */
	const char *stem;
	struct uns_span pickle; /* the new one */
	struct repair_storage {
		uint64_t at_bytes, len_bytes; /* in the file */
		enum uns_dtype from, to;      /* U8 = as it is */
	} *storage;     /* data/0, data/1, .. */
	size_t n;
};

/* What becomes of a file or directory that is not copied as it is. */
struct repair_file {
	const char *path; /* below SOURCE */
	bool drop;
	const char *text;                 /* the new content; */
	const struct repair_torch *torch; /* or this */
};

/* A checkpoint below the directory that is repaired. */
struct repair_checkpoint {
	const char *path;
	enum uns_family family;
	enum uns_tracker tracker;
	const char *run;     /* below SOURCE: where the tracker lies; NULL = there is none, or it is not known */
	const char *problem; /* the first one's sentence; NULL = sound */
	bool lacks_state;    /* trainer_state.json: it is missing, or no Trainer takes it */
	bool other_problem;  /* there is one besides */
	bool state_made;     /* the copy has a new trainer_state.json */
	bool has_weights;    /* the view weights can show it */
	bool changed;        /* something is planned that should rid it of that */
	bool dropped;        /* it is not in the copy */
};

/* A tracker that is not in order. */
struct repair_stale {
	const char *path, *problem;
};

struct repair {
	struct unshard *u;
	const char *path; /* below SOURCE: what is copied */
	struct uns_arena arena;
	struct uns_map by_path; /* path -> struct repair_file */
	struct unshard_change *change;
	size_t n_changes, cap_changes;
	struct repair_checkpoint *checkpoint;
	size_t n_checkpoints, cap_checkpoints;
	struct repair_stale *stale;
	size_t n_stale, cap_stale;
	const char **unread; /* directories that cannot be read, below SOURCE; each is a change, too */
	size_t n_unread, cap_unread;
	const char *refusal; /* why something was not derived: the first reason */
};

__attribute__((format(printf, 4, 5))) int repair_change(struct repair *r, const char *path,
							enum unshard_change_kind kind, const char *fmt, ...);
/* Remembers why nothing was derived, if the reason is more exact than the problem. */
__attribute__((format(printf, 2, 3))) int repair_refuse(struct repair *r, const char *fmt, ...);
int repair_plan_file(struct repair *r, const struct repair_file *file);
/* Directory `path` is left out of the copy; `why` is a sentence. */
int repair_leave_out(struct repair *r, const char *path, const char *why);
/* A directory that cannot be read (session/walk.h) is left out of the copy, which is one of the changes. */
int repair_visit_unreadable(void *repair, const char *path, const struct uns_err *why, struct uns_err *err);
/* Something is planned that is worth a copy. */
static inline bool repair_is_needed(const struct repair *r)
{
	return r->n_changes > r->n_unread;
}
const struct repair_file *repair_file_of(const struct repair *r, const char *path);

/* -- worlds.c: rank sets of other numbers of ranks are left out where one is the current one -- */
int repair_worlds(struct repair *r, struct repair_checkpoint *checkpoint, struct uns_err *err);
/* -- dtypes.c: one type for what the ranks hold of a tensor -- */
int repair_dtypes(struct repair *r, struct repair_checkpoint *checkpoint, const struct uns_catalog *cat,
		  struct uns_err *err);
/* -- trackers.c: the file that names the last checkpoint, out of those that are sound -- */
int repair_trackers(struct repair *r, struct uns_err *err);
/* -- states.c: a trainer_state.json that is missing -- */
struct snapshot;
int repair_trainer_state(struct repair *r, struct repair_checkpoint *checkpoint, struct dir_record *record,
			 struct snapshot *snap, struct uns_err *err);
/* -- instead.c -- */
/* Finds out whether the weights of a checkpoint can be used. */
int repair_find_weights(struct repair *r, struct repair_checkpoint *checkpoint, struct dir_record *record,
			struct uns_err *err);
/* Names what can be used of a checkpoint that is not repaired, or in its place, as the end of a sentence ("" =
 * nothing). */
int repair_name_instead(struct repair *r, const struct repair_checkpoint *checkpoint, const char **out,
			struct uns_err *err);
/* -- torch.c -- */
int repair_torch_write(struct repair *r, const struct repair_torch *torch, int fd, const char *out,
		       struct uns_err *err);

/* -- copy.c -- */

struct repair_watch {
	struct caller *caller;
	uint64_t done_bytes, total_bytes;
};
/* Sizes of the files at and below `path` that are copied, added to *bytes; directories that cannot be read are
 * passed over. */
int repair_measure(struct repair *r, const char *path, uint64_t *bytes, struct uns_err *err);
/* All of it into `to`, an empty directory that exists; synced. */
int repair_copy(struct repair *r, const char *to, struct repair_watch *watch, struct uns_err *err);

#endif
