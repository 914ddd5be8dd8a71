/* A sound copy of a checkpoint or a run where one can be derived: what is planned, file by file.
 * Nothing is written before the plan is whole. Private to lib/session. */
#ifndef UNS_REPAIR_REPAIR_H
#define UNS_REPAIR_REPAIR_H

#include "session/caller.h"
#include "session/session.h"

/* A torch file again, with storages of another type. */
struct repair_torch {
	const char *path; /* below SOURCE */
	const char *stem;
	struct uns_span pickle; /* the new one */
	struct repair_storage {
		uint64_t at_bytes, len_bytes; /* in the file */
		enum uns_dtype from, to;      /* U8 = as it is */
	} * storage;                          /* data/0, data/1, .. */
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
struct repair_place {
	const char *path;
	enum uns_family family;
	enum uns_tracker tracker;
	const char *problem; /* the first one's sentence; NULL = sound */
	bool changed;        /* something is planned that should rid it of that */
	bool dropped;
};

struct repair {
	struct unshard *u;
	const char *path; /* below SOURCE: what is copied */
	struct uns_arena arena;
	struct uns_map by_path; /* path -> struct repair_file */
	struct unshard_change *change;
	size_t n_changes, cap_changes;
	struct repair_place *place;
	size_t n_places, cap_places;
	const char *refusal; /* why something was not derived: the first reason */
};

__attribute__((format(printf, 4, 5))) int repair_change(struct repair *r, const char *path,
							enum unshard_change_kind kind,
							const char *fmt, ...);
/* Remember why nothing was derived, where that says more than the problem itself. */
__attribute__((format(printf, 2, 3))) int repair_refuse(struct repair *r, const char *fmt, ...);
int repair_plan_file(struct repair *r, const struct repair_file *file);
const struct repair_file *repair_file_of(const struct repair *r, const char *path);

/* -- repair_worlds.c: rank sets of other world sizes are left out where one is the current one --
 */
int repair_worlds(struct repair *r, struct repair_place *place, struct uns_err *err);
/* -- repair_dtypes.c: one type for what the ranks hold of a tensor -- */
int repair_dtypes(struct repair *r, struct repair_place *place, const struct uns_catalog *cat,
		  struct uns_err *err);
/* -- repair_trackers.c: the file that names the last checkpoint, out of those that are sound -- */
int repair_trackers(struct repair *r, struct uns_err *err);
/* -- repair_torch.c -- */
int repair_torch_write(struct repair *r, const struct repair_torch *torch, int fd,
		       struct uns_err *err);

/* -- repair_copy.c -- */

struct repair_watch {
	struct caller *caller;
	uint64_t done_bytes, total_bytes;
};
/* All of it into `to`, an empty directory that exists; synced. */
int repair_copy(struct repair *r, const char *to, struct repair_watch *watch, struct uns_err *err);
void repair_remove(const char *path); /* a directory with all in it */

#endif
