/* A stack, linked through the buffers themselves: the warmest one is used next. */
#include "buffers.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

void fs_buffers_init(struct fs_buffers *buffers)
{
	buffers->free_list = NULL;
	pthread_mutex_init(&buffers->lock, NULL);
}

void fs_buffers_fini(struct fs_buffers *buffers)
{
	void *buffer;

	while ((buffer = buffers->free_list)) {
		buffers->free_list = *(void **)buffer;
		free(buffer);
	}
	pthread_mutex_destroy(&buffers->lock);
}

void *fs_buffers_get(struct fs_buffers *buffers)
{
	void *buffer;

	pthread_mutex_lock(&buffers->lock);
	buffer = buffers->free_list;
	if (buffer)
		buffers->free_list = *(void **)buffer;
	pthread_mutex_unlock(&buffers->lock);
	return buffer ? buffer : aligned_alloc(PAGE_BYTES, FS_BUFFER_BYTES);
}

void fs_buffers_put(struct fs_buffers *buffers, void *buffer)
{
	pthread_mutex_lock(&buffers->lock);
	*(void **)buffer = buffers->free_list;
	buffers->free_list = buffer;
	pthread_mutex_unlock(&buffers->lock);
}
