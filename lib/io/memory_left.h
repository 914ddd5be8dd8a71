/* How much memory this process may take before the kernel must drop what is worth keeping. Any thread. */
#ifndef UNS_IO_MEMORY_LEFT_H
#define UNS_IO_MEMORY_LEFT_H

#include <stdint.h>

/* The least of what the machine has left and of what each control group of the process (memory.max, or version 1's
 * memory.limit_in_bytes) lets it take. Pages of files count as left: they go first. What cannot be read limits nothing.
 * Some twenty small reads of /proc and /sys, with one descriptor at a time. `root` is put before these paths: "" but in
 * tests. */
uint64_t uns_memory_left(const char *root);

#endif
