/* Numbers beside the kernel's descriptors, of open things of this process's own, such as an object of a
 * store: code that keeps, passes on and closes (base/cleanup.h) a descriptor need not know which of the two it has.
 * They begin above all that the kernel gives, so that a system call with one fails with EBADF. Any thread. */
#ifndef UNS_BASE_HANDLE_H
#define UNS_BASE_HANDLE_H

#include <stdbool.h>

enum { UNS_FIRST_HANDLE = 1 << 30 };

static inline bool uns_is_handle(int fd)
{
	return fd >= UNS_FIRST_HANDLE;
}

/* Takes `what`, which `release` frees when the handle is closed. -ENOMEM: `what` is released at once. */
int uns_handle_new(void *what, void (*release)(void *what));
/* What it was made of: valid until it is closed, which no other thread may do meanwhile. */
void *uns_handle_get(int handle);
void uns_handle_close(int handle);

#endif
