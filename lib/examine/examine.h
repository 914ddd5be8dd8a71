/* What a directory of SOURCE is at this moment, or a file that may be a checkpoint: plain, or a checkpoint with its
 * format and its generation. Looks; keeps nothing. */
#ifndef UNS_EXAMINE_EXAMINE_H
#define UNS_EXAMINE_EXAMINE_H

#include "formats/format.h"
#include "store/store_link.h"

/* Directories below a plain one whose names a format's probe asked for: shards may arrive there. */
struct watched {
	struct uns_arena arena;
	struct {
		const char *path;
		struct uns_identity id;
	} * v;
	size_t n, cap;
};

struct examined {
	const struct uns_format *format; /* NULL = a plain directory, or a file that is no checkpoint */
	bool begun; /* a plain one that looks like a checkpoint whose save or copy has begun */
	uint64_t generation;        /* of a checkpoint: all files it may use, and the facts */
	uint64_t source_generation; /* the files alone: identities */
	uint64_t own_generation;    /* those in its own directory alone */
	uint64_t source_bytes;      /* their sizes added up */
	struct uns_stat stat;       /* of the directory, or of the file */
	int64_t newest_ns;          /* last change of any file or directory of it, wall clock */
	int64_t at_ns;              /* when it was examined, wall clock */

	/* For the next examination. */
	int64_t newest_file_ns;       /* last change of what any file holds */
	struct facts_seen facts;      /* what the store said of it */
	struct watched watched;       /* what else makes a plain directory what it is */
	bool still_plain;             /* `watched` and `begun` are those of `before` */
	struct uns_identity state_id; /* its trainer_state.json, and whether that is whole */
	bool state_whole;
};

struct examiner {
	const struct uns_root *root;
	const char *hidden; /* a path below SOURCE that is never looked at; NULL = none */
	struct uns_kept_lists *lists; /* of the run's directory, for all of its checkpoints; NULL = none */
	struct store_link *store;
	const char *path; /* what to examine, below SOURCE */
	const struct examined *before; /* the last examination, which saves work; NULL = there was none */
};

/* *capture is what *out was made of, where it is a checkpoint; else NULL. -ENOENT; -ENOTDIR: any other file. */
int examine(const struct examiner *x, struct examined *out, struct uns_capture **capture, struct uns_err *err);
void examined_fini(struct examined *e);

/* A file of this name may be a checkpoint; no other is looked into. */
bool examine_may_be_file(const char *path);

#endif
