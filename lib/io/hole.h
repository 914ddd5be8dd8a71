/* Holes: bytes of a file that were never written. They read as zeros. */
#ifndef UNS_IO_HOLE_H
#define UNS_IO_HOLE_H

#include <stdint.h>

/* Where the hole begins with which a file of this size ends; its size if it ends in none, or if the file system does
 * not report it. Moves the descriptor's position. */
uint64_t uns_fd_hole_at_end(int fd, uint64_t size);

#endif
