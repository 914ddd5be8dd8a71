/* Unlinked temporary files. */
#ifndef UNS_ENGINE_SPILL_H
#define UNS_ENGINE_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A new file in `dir` that has no name. All sentences name the directory. */
int uns_spill_open(const char *dir, int *fd, struct uns_err *err);
/* -ENOSPC when the directory's file system is full. */
int uns_spill_write(const char *dir, int fd, const void *buf, size_t len, uint64_t off, struct uns_err *err);
int uns_spill_read(const char *dir, int fd, void *buf, size_t len, uint64_t off, struct uns_err *err);
/* The file's first len bytes as writable memory, blocks allocated so that a full disk is an error
 * here and not a signal later. */
int uns_spill_map(const char *dir, int fd, uint64_t len, uint8_t **out, struct uns_err *err);
void uns_spill_unmap(uint8_t *p, uint64_t len);

#endif
