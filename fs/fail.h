/* Sentences in the public error structure; as in the library, the first cause wins. */
#ifndef FS_FAIL_H
#define FS_FAIL_H

#include "unshard.h"

/* Record code and sentence if err is empty; always returns code. err may be NULL. */
__attribute__((format(printf, 3, 4), cold)) int fs_fail(struct unshard_error *err, int code, const char *fmt, ...);

#endif
