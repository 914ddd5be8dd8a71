/* What a view shows of a checkpoint, without what it is made of: path, size, owner, mode and time of each file. Small
 * beside a catalog and a tree (some 15 bytes a file), and constant once made. */
#ifndef UNS_SESSION_CONTENTS_H
#define UNS_SESSION_CONTENTS_H

#include "base/span.h"
#include "files/attributes.h"
#include "views/view.h"

struct contents_file {
	const char *path; /* below the checkpoint's directory */
	uint64_t size_bytes;
	struct uns_attributes attr;
};

struct contents {
	struct contents *next; /* of the same checkpoint, in another view (contents_kept.h) */
	const struct uns_view *view;
	uint64_t parameter;
	unsigned refs;  /* atomic */
	bool has_whole; /* the view shows the checkpoint as one file, too */
	uint32_t n_attr, n_starts, longest, n_bytes;
	struct uns_attributes attr[]; /* those that files have; behind them, see contents.c */
};

struct contents_source {
	const struct uns_view *view;
	uint64_t parameter;
	const struct uns_vtree *tree;
	const struct uns_catalog *catalog;
	const struct uns_stat *dir; /* the checkpoint's own directory */
};

/* *out has one reference. -ENOMEM. O(segments and pieces). */
int contents_new(const struct contents_source *from, struct contents **out, struct uns_err *err);
struct contents *contents_ref(struct contents *contents);
void contents_unref(struct contents *contents); /* NULL is allowed */
/* In memory. */
size_t contents_bytes(const struct contents *contents);

/* The file at `path`, or all below it, "" = all but the whole one, in the order of the tree. Costs the logarithm of how
 * many there are, and each of those that it finds. Use:
 *
 *      UNS_TRY(contents_begin(contents, path, &arena, &at, err));
 *      while (contents_next(&at, &file))
 *              ...; a file's path is good until the next one is asked for */
struct contents_at {
	const struct contents *of;
	struct uns_span text;
	const char *top, *below;
	char *path;
};

int contents_begin(const struct contents *contents, const char *path, struct uns_arena *arena, struct contents_at *out,
		   struct uns_err *err);
bool contents_next(struct contents_at *at, struct contents_file *out);
/* The checkpoint as one file; without its path. */
struct contents_file contents_whole(const struct contents *contents);

#endif
