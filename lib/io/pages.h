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
/* Has the page that holds this byte been read? One that was only asked for has not. Where the kernel does not report it
 * (what cannot be mapped; to a process that may neither own nor write the file), it has. */
bool uns_page_has_come(int fd, uint64_t at);

#endif
