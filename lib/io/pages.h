/* Which pages of a file the kernel has in its cache. */
#ifndef UNS_IO_PAGES_H
#define UNS_IO_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/* Pages that bytes [off, off+len) touch; len > 0. */
uint64_t uns_pages_of(uint64_t off, uint64_t len);
/* How many of them are in the cache, or were asked for and will be. false: the kernel does not report it (before Linux
 * 6.5; to a process that may neither own nor write the file). */
bool uns_pages_cached(int fd, uint64_t off, uint64_t len, uint64_t *cached);

#endif
