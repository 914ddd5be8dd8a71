/* Opens all ranks' files of one kind, one after the other. Files that are missing or cannot be read are reported,
 * tensors are merged. What such a file contains is up to the callers. Private to ranks/. */
#ifndef UNS_RANKS_READING_H
#define UNS_RANKS_READING_H

#include "base/text.h"
#include "ranks/params.h"
#include "ranks/merge.h"

/* Files that are missing. */
struct uns_rank_missing {
	const char *path; /* the first */
	size_t n;
	struct uns_text ranks; /* for people, but for the last run from..to */
	int32_t first, from, to;
};

struct uns_rank_reading {
	struct uns_catalog *cat;
	const struct uns_root *root;
	struct uns_rank_merge merge;
	struct uns_arena *keep; /* where the first file's values stay; by default the catalog's arena */
	size_t n_read; /* files whose content was understood */
	size_t n_unknown; /* of a form that is not known */
	bool unknown;     /* they all seem to be: the others are not read */
	bool skips_unknown; /* a file of a form that is not known is no finding: nothing is read of it */
	bool no_copies;   /* set by `add`: the files hold more than was given to merge */
	struct uns_rank_missing missing;
	struct uns_rank_unread *unread, **unread_tail;
};

/* scope: what is lost with one of the files. */
int uns_rank_reading_init(struct uns_rank_reading *r, struct uns_catalog *cat, const struct uns_root *root,
			  enum uns_scope scope, size_t n_files, struct uns_err *err);
void uns_rank_reading_fini(struct uns_rank_reading *r);

/* What is in one file: the value that it holds is source->torch->root, which stays in `keep` while n_read is 0, else
 * only during the call. What it fails with becomes a problem that names the file. */
typedef int uns_rank_add(void *ctx, struct uns_rank_source *source, struct uns_err *err);

/* Read them all and hand the tensors to the catalog. Fails only when memory is out. */
int uns_rank_reading_add(struct uns_rank_reading *r, const struct uns_rank_file *files, size_t n, uns_rank_add *add,
			 void *ctx, struct uns_err *err);

#endif
