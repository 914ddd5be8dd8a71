/* A view's tree as an ordinary directory: first all of it is listed (plan.c), then its directories, links and
 * empty files are made (disk_tree.c), then bytes are written block by block (blocks.c), and read back where
 * that is wanted (blocks.c, checksums.c). Private to lib/export. */
#ifndef UNS_EXPORT_EXPORTING_H
#define UNS_EXPORT_EXPORTING_H

#include <pthread.h>

#include "api/caller.h"
#include "base/map.h"
#include "base/pool.h"
#include "out/target.h"
#include "session/session.h"

enum export_kind { EXPORT_DIR, EXPORT_LINK, EXPORT_FILE };

struct export_entry {
	const char *path; /* below OUT */
	enum export_kind kind;
	const char *target; /* of a link */

	struct unshard_stat stat; /* of a directory: its mode alone */

	/* Of a file. */
	unshard_node *node;
	bool shared;       /* by reflink: there is nothing to write */
	bool was_there;    /* what an earlier export left is compared with what is to be written */
	uint64_t first_block; /* of all files' blocks, in the order of the entries */
};

struct export
{
	struct unshard *u;
	struct caller caller;
	const struct uns_view *view;
	uint64_t parameter;
	const char *view_name;
	const char *path;     /* below SOURCE */
	const char *shown_at; /* below the view: its name there may be another */
	unsigned flags;
	struct uns_target target;
	mode_t top_mode, umask;
	struct uns_arena arena;

	struct export_entry *entry; /* a directory before what is in it */
	size_t n, cap;
	struct uns_map by_path; /* path below OUT -> index in `entry` */
	struct unshard_change *change;
	size_t n_changes, cap_changes;
	struct uns_map left_out; /* paths of checkpoints below SOURCE */
	struct uns_map shown;    /* of those that are exported; the value: the first file of each */
	struct unshard_exported made;
};

/* -- plan.c: nothing is written -- */
int export_plan(struct export *e, struct uns_err *err);

/* -- disk_tree.c: under the partial name -- */

/* Make it or, to resume, find it, with room for all bytes. *lock: to be held until the export has ended. What
 * was made is removed where that fails. */
int export_make_tree(struct export *e, int *lock, struct uns_err *err);
int export_sync_tree(const struct export *e, struct uns_err *err);

/* -- blocks.c -- */
int export_write(struct export *e, struct uns_pool *pool, struct uns_err *err);
/* What is on the disk against the view. */
int export_verify(struct export *e, struct uns_pool *pool, struct uns_err *err);

/* -- checksums.c -- */
#define EXPORT_CHECKSUMS "SHA256SUMS"
int export_checksums(struct export *e, struct uns_pool *pool, struct uns_err *err);

/* -- for all of them -- */

/* The path of an entry under the partial name, in `out`. */
int export_path(const struct export *e, const char *path, char out[PATH_MAX], struct uns_err *err);
/* Adds to *done, which counts for all threads, and asks the caller. */
int export_step(struct export *e, enum unshard_phase phase, _Atomic uint64_t *done, uint64_t n_bytes,
		uint64_t total_bytes, struct uns_err *err);
/* What a function of unshard.h failed with. */
int export_fail(struct uns_err *err, int code, const struct unshard_error *why);

#endif
