/* What the serving process may still do: read foreign files, answer the kernel, write its own. A checkpoint that takes
 * it over finds no privilege of root's and cannot write to SOURCE. */
#ifndef FS_CONFINE_H
#define FS_CONFINE_H

#include "fs.h"

/* For the calling thread and all that it starts later, so no other may run; for good.
 *   - Of its capabilities it keeps CAP_DAC_READ_SEARCH alone, if it has that: root reads what SOURCE's owners wrote.
 *   - Programs that it runs gain none (no_new_privs).
 *   - Where the kernel has Landlock (5.13): below `writable` (n directories; those that are not there do not count)
 *     it makes, changes and removes files, elsewhere none. Descriptors that are open stay as they are.
 * 0; a negative errno and a sentence if the kernel refuses. */
int fs_confine(const char *const *writable, size_t n, struct unshard_error *err);

#endif
