/* One look at a directory and at what is below it: each directory is listed once, each entry stat'ed
 * once, and all questions of one examination (which format is it, what is its generation,
 * what does its catalog hold) are answered from that. So all that is made of one capture belongs
 * together, even while a trainer writes.
 *
 * It costs one system call an entry, and four for each directory. What it was not made of is looked
 * at when it is first asked for, and remembered as well.
 *
 * Threads: a capture belongs to one thread at a time. */
#ifndef UNS_IO_CAPTURE_H
#define UNS_IO_CAPTURE_H

#include "io/inputs.h"
#include "io/kept_list.h"
#include "io/source.h"

struct uns_capture;

/* Open directory `path` below root and stat it; nothing is listed yet. `hidden` (a path below root,
 * borrowed; NULL = none) is left out as if it were not there, and never touched. `lists` (borrowed; NULL = none) keeps
 * the listings of directories around it for other captures.
 * -ENOENT; -ENOTDIR when it is no directory. A regular file is stat'ed alone with `file`: stats of what
 * lies around it come from the capture then. */
int uns_capture_new_of(const struct uns_root *root, const char *path, const char *hidden, bool file,
		       struct uns_kept_lists *lists, struct uns_capture **out, struct uns_err *err);
int uns_capture_new(const struct uns_root *root, const char *path, const char *hidden, struct uns_capture **out,
		    struct uns_err *err);
void uns_capture_free(struct uns_capture *capture); /* NULL is allowed */

const struct uns_root *uns_capture_root(const struct uns_capture *capture);
const char *uns_capture_path(const struct uns_capture *capture); /* below root */
const struct uns_stat *uns_capture_top(const struct uns_capture *capture); /* the directory itself */

/* The list of what was looked at outside the directory, to which io/seen.h adds. */
struct uns_inputs **uns_capture_inputs(struct uns_capture *capture);
void uns_capture_give_inputs(struct uns_capture *capture, struct uns_inputs *inputs); /* in the place of that one */

/* The names in any directory below root; belongs to the capture. */
int uns_capture_list(struct uns_capture *capture, const char *path, const struct uns_listing **out,
		     struct uns_err *err);
/* The same below any root; *dir (may be NULL): the directory just before it was listed. */
int uns_capture_list_in(struct uns_capture *capture, const struct uns_root *root, const char *path,
			const struct uns_listing **out, struct uns_stat *dir, struct uns_err *err);
/* As uns_root_stat with `follow`. */
int uns_capture_stat(struct uns_capture *capture, const char *path, struct uns_stat *out, struct uns_err *err);
int uns_capture_stat_in(struct uns_capture *capture, const struct uns_root *root, const char *path,
			struct uns_stat *out, struct uns_err *err);

/* List and stat everything in the capture's directory and, down to `depth` levels, in directories
 * below it (not behind links). Afterwards both functions above answer from memory there. */
int uns_capture_fill(struct uns_capture *capture, int depth, struct uns_err *err);
/* It is the capture's own path, or uns_capture_fill has looked at it; `names`: at the names in it, if it is a directory
 * or a link to one. */
bool uns_capture_filled(const struct uns_capture *capture, const struct uns_root *root, const char *path, bool names);
/* Stat some names of one directory together: two system calls, and one a name. What fails is found
 * out by uns_capture_stat. */
void uns_capture_look(struct uns_capture *capture, const struct uns_root *root, const char *dir,
		      const char *const *names, size_t n);

/* What the kernel keeps of the bytes of all files that uns_capture_fill has looked at, or of the one file that it is,
 * is dropped where it may be old (uns_fd_forget_pages): opens each of them there. One that cannot be opened is left. */
void uns_capture_forget_pages(struct uns_capture *capture);

/* What lies at `below` in the capture's directory, looked at now and not remembered; links are not followed. Only until
 * uns_capture_fill has begun. */
int uns_capture_peek(const struct uns_capture *capture, const char *below, struct uns_stat *out, struct uns_err *err);

/* Has a listing or stat with this code failed for a reason that is not the files' (uns_code_is_finding)? -EACCES, what
 * is kept to others, is none: it lasts. */
bool uns_capture_is_fault(int code);
/* 0, or the first listing or stat of this capture that failed so: what was made of it may be wrong. */
int uns_capture_fault(const struct uns_capture *capture, struct uns_err *err);
/* Such a failure of a caller that cannot hand it on, a format's probe for one: memory that was out beside the capture's
 * own looks. A code that is none, 0 among them, is left out. capture may be NULL. */
void uns_capture_note_fault(struct uns_capture *capture, const struct uns_err *why);

/* What a format looks at: a directory with its names, or one file. */
struct uns_directory {
	const struct uns_root *root;
	const char *path; /* below root */
	const struct uns_listing *list; /* NULL: it is one file */
	struct uns_capture *capture; /* for what is below (uns_list_seen); may be NULL */
	/* Names of the user's, NULL at the end: of adapters that may lie in directories below. NULL = none. */
	const char *const *adapters;
};

#endif
