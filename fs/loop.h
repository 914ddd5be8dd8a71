/* The threads that read requests and answer them. */
#ifndef FS_LOOP_H
#define FS_LOOP_H

#include "ops.h"

/* Serves until the mount is unmounted or a signal ends the session. Then unmounts, waits for the requests that are
 * being answered, and returns 0; or a negative errno: no thread could be started, or the kernel took no answers any
 * more. A thread is added whenever all are busy, up to `most`. Where memory is short a request waits in the kernel
 * until there is some.
 *
 * 1 = unmounted, but threads still wait for storage that does not answer. All requests were answered. Nothing of `fs`
 * or of its session may be freed: the process has to end. */
int fs_loop(struct fs *fs, unsigned most);

#endif
