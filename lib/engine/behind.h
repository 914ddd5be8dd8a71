/* Which bytes of source files have been read and need not stay in the kernel's page cache: a caller that caches what
 * it reads would have each byte there twice.
 *
 * Only pages that hold nothing but such bytes can go, and the kernel lets go of a large folio only as a whole. So what
 * was read is put together, over all readers of a checkpoint, until a few MiB in a row are there. */
#ifndef UNS_ENGINE_BEHIND_H
#define UNS_ENGINE_BEHIND_H

#include "engine/engine.h"

/* Bytes [at, at+len) of the layout's file were read and are kept elsewhere. What was decompressed or is read with a
 * stride stays. Any number of threads. A hint: it fails silently. */
void uns_behind_read(struct uns_backing *backing, const struct uns_layout *layout, uint64_t at, size_t len);
/* A reader has ended: do not wait until there is enough in a row, and let go again of what came back. */
void uns_behind_end(struct uns_backing *backing);

#endif
