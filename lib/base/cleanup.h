/* Scope-bound ownership: a variable marked UNS_CLEANUP is released when it goes out of scope;
 * UNS_TAKE moves a pointer out so that the cleanup sees NULL. */
#ifndef UNS_BASE_CLEANUP_H
#define UNS_BASE_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/handle.h"

#define UNS_CLEANUP(fn) __attribute__((cleanup(fn)))

#define UNS_TAKE(p)                             \
	__extension__({                         \
		__typeof__(p) uns_take_p = (p); \
		(p) = NULL;                     \
		uns_take_p;                     \
	})

static inline void uns_free_p(void *pp)
{
	void **p = pp;

	free(*p);
}

/* close() may change errno, which the caller is about to report: put it back. */
static inline void uns_close_p(int *fd)
{
	int saved = errno;

	if (uns_is_handle(*fd))
		uns_handle_close(*fd);
	else if (*fd >= 0)
		close(*fd);
	errno = saved;
}

#endif
