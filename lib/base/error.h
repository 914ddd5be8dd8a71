/* Errors: a negative errno plus one sentence. The first cause wins: a caller further up that
 * fails "because of that" adds nothing, so the sentence is the one closest to the bytes. But a fault of this
 * moment (uns_code_is_finding) takes the place of a sentence about a file: where memory was out after a file was found
 * absent, err must not record, for others to remember, that it is absent.
 *
 * Codes are few and mean the same from a parser to the kernel:
 *   -EBADMSG damaged   -ENOTSUP valid but unknown   -ENODATA incomplete checkpoint
 *   -ESTALE source changed   -ENOENT   -ENOMEM   -EIO   -EINVAL bad argument
 *
 * A caller that wants what is wrong as a value (model/finding.h), and not only a sentence about it, sets
 * `keep` before: the finding, where there is one, and its texts are put there. */
#ifndef UNS_BASE_ERROR_H
#define UNS_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>

#include "base/arena.h"

enum { UNS_ERR_TEXT = 512 };

struct uns_finding;

struct uns_err {
	int code; /* 0 = nothing failed yet */
	char text[UNS_ERR_TEXT];

	struct uns_arena *keep; /* set by the caller; NULL = only code and sentence are wanted */
	/* In `keep`, or borrowed from what outlives it. NULL = not known. */
	const struct uns_finding *finding; /* what `text` is a sentence of */
	const char *file;                  /* the file that was being read */
	const char *cause;                 /* `text` is "file: cause" */
};

/* Does err take the code: is it empty, or about a file, and the code is a fault of this moment? */
bool uns_err_takes(const struct uns_err *err, int code);
/* Record code and sentence if err takes them; always returns code. err may be NULL. */
__attribute__((format(printf, 3, 4), cold)) int uns_fail(struct uns_err *err, int code, const char *fmt, ...);

/* -ENOMEM, with its one sentence. */
__attribute__((cold)) int uns_oom(struct uns_err *err);

/* Returns 0, or fails with -ENOMEM if an allocation in the arena has failed. */
int uns_arena_check(const struct uns_arena *arena, struct uns_err *err);

/* Fail for the reason that `why` has, with copies of its texts. The finding is borrowed: code that knows findings
 * calls uns_fail_copy (model/finding.h). */
__attribute__((cold)) int uns_fail_as(struct uns_err *err, const struct uns_err *why);

/* Is a failed read about the file itself: is that absent (also: behind a link that may
 * not be followed), damaged, incomplete or of an unknown form? Only then may a caller conclude something
 * from it, look elsewhere, or make a file in its place. Every other code (-EIO, -EACCES, -EMFILE,
 * -ENOMEM, -ESTALE, ..) is a fault of this moment: what was asked for fails with it, and it is
 * forgotten. */
bool uns_code_is_finding(int code);
/* 0, or fails with `why` where the code is such a fault. */
int uns_fail_if_passing(struct uns_err *err, int code, const struct uns_err *why);

/* Put "prefix: " in front of a recorded sentence (which tensor, which part). Returns err->code. */
__attribute__((format(printf, 2, 3), cold)) int uns_fail_in(struct uns_err *err, const char *fmt, ...);

/* The same for the file that was being read: "path: ". A finding names its file itself. */
__attribute__((cold)) int uns_fail_in_file(struct uns_err *err, const char *path);

/* The recorded sentence is about this file, and names it in a way of its own. Returns err->code. */
__attribute__((cold)) int uns_fail_about(struct uns_err *err, const char *path);

#define UNS_TRY(call)                        \
	do {                                 \
		int uns_try_code = (call);   \
		if (uns_try_code < 0)        \
			return uns_try_code; \
	} while (0)

/* UNS_TRY_ALLOC(p = UNS_NEW(arena, struct thing), err): ends the calling function with -ENOMEM if p is NULL. */
#define UNS_TRY_ALLOC(allocated, err)        \
	do {                                 \
		if (!(allocated))            \
			return uns_oom(err); \
	} while (0)

#endif
