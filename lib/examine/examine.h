/* What a directory of SOURCE is at this moment, or a file that may be a checkpoint: plain, or a checkpoint with its
 * format and its generation. Looks; keeps nothing. */
#ifndef UNS_EXAMINE_EXAMINE_H
#define UNS_EXAMINE_EXAMINE_H

#include "examine/own_dirs.h"
#include "formats/format.h"
#include "store/store_link.h"

struct examined {
	const struct uns_format *format; /* NULL = a plain directory, or a file that is no checkpoint */
	bool begun; /* a plain one that looks like a checkpoint whose save or copy has begun */
	uint64_t own_generation; /* of a checkpoint: all files in its own directory */
	uint64_t content; /* the same on every machine, and in copies that keep times: names, sizes and mtimes */
	uint64_t generation; /* of own_generation, of `inputs`, and of the store's facts */
	uint64_t source_bytes; /* the sizes of its own files added up */
	struct uns_stat stat; /* of the directory, or of the file */
	int64_t newest_ns; /* last change of any file or directory of it, wall clock */
	int64_t at_ns; /* when it was examined, wall clock */
	int64_t newest_file_ns; /* last change of what any of its files holds */
	bool same; /* all is as it was when it was examined before */
	uint64_t facts_digest; /* of the store's facts about it, or about its run; 0 = there are none */
	struct facts_seen facts; /* for the next examination */
	/* What else was looked at to find out what it is: with the format's own questions alone until it is opened. */
	struct uns_inputs *inputs;
	struct own_dirs *dirs; /* of a checkpoint; NULL = one of them changed too lately to be compared */
	bool glanced; /* it is a copy of what it was before: a glance showed no other */
};

struct examiner {
	const struct uns_root *root;
	const char *hidden; /* a path below SOURCE that is never looked at; NULL = none */
	struct uns_kept_lists *lists; /* of the run's directory, for all of its checkpoints; NULL = none */
	struct store_link *store;
	const char *const *adapters; /* as struct uns_directory has them */
	const char *path; /* what to examine, below SOURCE */
	const struct examined *before; /* the last examination, which saves work; NULL = there was none */
	bool glance; /* a checkpoint is the same if its directories and its inputs are: its files are not looked at */
};

/* *capture is what *out was made of, where it is a checkpoint; else NULL. -ENOENT; -ENOTDIR: any other file. */
int examine(const struct examiner *x, struct examined *out, struct uns_capture **capture, struct uns_err *err);
void examined_fini(struct examined *e);

/* The generation of a checkpoint that was opened: `inputs` has all that was looked at for it. */
uint64_t examined_generation(const struct examined *e, const struct uns_inputs *inputs);

/* A file of this name may be a checkpoint; no other is looked into. */
bool examine_may_be_file(const char *path);

#endif
