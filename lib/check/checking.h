/* What one run of unshard_check carries along. Private to check/. */
#ifndef UNS_CHECK_CHECKING_H
#define UNS_CHECK_CHECKING_H

#include "session/reasons.h"
#include "session/walk.h"

struct checking {
	struct unshard *u;
	struct caller caller;
	bool deep;
	struct unshard *base; /* of the model to compare with; NULL = none */
	const char *base_path; /* below it */
	bool sealed; /* the checkpoint being looked at was compared with its seal */
	bool without_holes;
	bool for_view; /* judge a resume from the session's view, too */
	struct unshard_check_counts counts;
	struct walk walk;
	size_t n_without_crc; /* files, of all checkpoints that have no seal */
	char *without_crc; /* the first */
	const char *path; /* of the checkpoint or directory being looked at */
};

/* Counts a reason and calls the visitor with it. Returns the visitor's answer. */
int checking_hand_over(struct checking *c, const struct reason *reason, enum uns_severity severity,
		       bool general_advice);
/* The same for a finding about `path`. */
int checking_found(struct checking *c, const struct uns_finding *f);
/* CHECKING_FOUND(c, RNG_MISSING, .file = path): one that is written here. */
#define CHECKING_FOUND(c, ...) checking_found((c), UNS_FINDING(.id = UNS_FOUND_##__VA_ARGS__))
int checking_found_as(struct checking *c, const struct uns_finding *f, enum uns_severity severity);
/* How the checkpoint is called in sentences: its own name, for what is around it is in `path`. */
const char *checking_name(const struct checking *c);

/* -- holes.c -- */

/* Files of the checkpoint whose ends were never written. */
int check_holes(struct checking *c, struct snapshot *snap);

/* -- other_models.c -- */

/* Notes files of another model in the directory, whose listing this is, and which file is shown. O(pieces). */
int check_other_models(struct checking *c, const struct uns_catalog *cat, const struct uns_listing *list);

/* -- check_whole.c -- */

/* Reports what the weights lack, and what is unlike its siblings. Reads no tensor data. */
int check_whole(struct checking *c, struct dir_record *record, struct snapshot *snap, struct uns_err *err);

/* -- check_seal.c -- */

/* What the seal disproves of a checkpoint that cannot be opened: snapshots that can were compared when they were made.
 */
int check_seal_unopened(struct checking *c, struct uns_err *err);
/* Compares all bytes with the seal, if there is one. cat: of the snapshot; NULL = it cannot be opened. */
int check_seal_deep(struct checking *c, const struct uns_catalog *cat, struct uns_err *err);

/* -- check_memo.c -- */

/* Reports a memo of -o memos= that is not what reading the checkpoint afresh gives. Reads all of its metadata. */
int check_memo(struct checking *c, const struct dir_record *record, struct uns_err *err);

/* -- check_base.c -- */

/* Reports what the weights lack that the base model has, and what else is unlike it. */
int check_base(struct checking *c, struct snapshot *snap, struct uns_err *err);

/* -- check_for.c -- */

/* Reports what a training that resumes from the session's view would miss. */
int check_for(struct checking *c, struct dir_record *record, struct snapshot *snap, struct uns_err *err);

/* -- check_deep.c -- */

/* Reports all that reading the checkpoint's bytes finds beside what is known. */
int check_deep(struct checking *c, struct snapshot *snap, const struct reasons *known, struct uns_err *err);

#endif
