/* Errors: a negative errno plus one sentence. The first cause wins: a caller further up that
 * fails "because of that" adds nothing, so the sentence is the one closest to the bytes.
 *
 * Codes are few and mean the same from a parser to the kernel:
 *   -EBADMSG damaged   -ENOTSUP valid but unknown   -ENODATA incomplete checkpoint
 *   -ESTALE source changed   -ENOENT   -ENOMEM   -EIO   -EINVAL bad argument
 */
#ifndef UNS_BASE_ERROR_H
#define UNS_BASE_ERROR_H

#include <errno.h>
#include <stdbool.h>

enum { UNS_ERR_TEXT = 512 };

struct uns_err {
	int code; /* 0 = nothing failed yet */
	char text[UNS_ERR_TEXT];
};

/* Record code and sentence if err is empty; always returns code. err may be NULL. */
__attribute__((format(printf, 3, 4), cold)) int uns_fail(struct uns_err *err, int code,
							 const char *fmt, ...);

/* -ENOMEM, with the one sentence that says it. */
__attribute__((cold)) int uns_oom(struct uns_err *err);

/* Does a failed read say something about the file itself: that it is absent (also: behind a link that may
 * not be followed), damaged, incomplete or of an unknown form? Only then may a caller conclude something
 * from it, look elsewhere, or make a file in its place. Every other code (-EIO, -EACCES, -EMFILE,
 * -ENOMEM, -ESTALE, ..) is a fault of this moment: what was asked for fails with it, and it is
 * forgotten. */
bool uns_code_is_finding(int code);
/* 0, or the failure where it is such a fault, with the sentence in `why`. */
int uns_fail_if_passing(struct uns_err *err, int code, const struct uns_err *why);

/* Put "prefix: " in front of a recorded sentence (which file, which tensor). Returns err->code. */
__attribute__((format(printf, 2, 3), cold)) int uns_fail_in(struct uns_err *err, const char *fmt,
							    ...);

#define UNS_TRY(call)                        \
	do {                                 \
		int uns_try_code = (call);   \
		if (uns_try_code < 0)        \
			return uns_try_code; \
	} while (0)

#endif
