/* Memory that a mount gives back when no program uses it. The kernel keeps what it looked up for as long as it has
 * memory, and the mount has to keep a node for each: 270 bytes a file. After a minute without a request, the kernel is
 * asked to forget files that are not open, if there are many, and the library frees what it can make again.
 * Directories stay: a program may be in one. */
#ifndef FS_IDLE_H
#define FS_IDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs;

struct fs_idle {
	int64_t asked_ns; /* when the last request came that was followed by this; 0 = none was */
	size_t n_nodes;   /* so many were left a second ago; 0 = all was given back */
};

/* To be called once a second, by one thread alone, which answers no request: the kernel may wait for one. */
void fs_idle_look(struct fs *fs);

#endif
