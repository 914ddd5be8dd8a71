/* Buffers for read requests, kept between requests: a fresh megabyte for each would cost more in
 * page faults than the copy. At most as many exist as requests ever ran at once. */
#ifndef FS_BUFFERS_H
#define FS_BUFFERS_H

#include <pthread.h>
#include <stddef.h>

enum { FS_BUFFER_BYTES = 1 << 20 }; /* the largest read the kernel sends */

struct fs_buffers {
	pthread_mutex_t lock;
	void *free_list;
};

void fs_buffers_init(struct fs_buffers *buffers);
void fs_buffers_fini(struct fs_buffers *buffers);

/* FS_BUFFER_BYTES of memory, page-aligned. NULL = out of memory. */
void *fs_buffers_get(struct fs_buffers *buffers);
void fs_buffers_put(struct fs_buffers *buffers, void *buffer);

#endif
