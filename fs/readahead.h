/* How far the kernel reads ahead on a mount. */
#ifndef FS_READAHEAD_H
#define FS_READAHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set read_ahead_kb of the mount's bdi. Where that is not allowed, `hint` gets the command that
 * does it and false is returned. Only after the kernel has taken the answer to FUSE_INIT: that
 * lowers the value again. */
bool fs_readahead_set(uint64_t dev, unsigned kb, char *hint, size_t hint_len);

#endif
