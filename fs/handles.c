/* A doubly linked list; the lock is held for pointer work only, never while closing. */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

void fs_handles_init(struct fs_handles *handles)
{
	handles->head = NULL;
	pthread_mutex_init(&handles->lock, NULL);
}

void fs_handles_fini(struct fs_handles *handles)
{
	while (handles->head) {
		handles->head->n_holds = 1;
		fs_handles_close(handles, handles->head);
	}
	pthread_mutex_destroy(&handles->lock);
}

struct fs_handle *fs_handles_open(struct fs_handles *handles, struct fs_node *node, unshard_file *file, bool young)
{
	struct fs_handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return NULL;
	handle->node = node;
	handle->file = file;
	handle->young = young;
	handle->n_holds = 1;
	if (file)
		atomic_fetch_add(&node->n_open, 1);
	pthread_mutex_lock(&handles->lock);
	handle->next = handles->head;
	if (handle->next)
		handle->next->prev = handle;
	handles->head = handle;
	pthread_mutex_unlock(&handles->lock);
	return handle;
}

/* The kernel passes the address from the thread that opened to another one. The C language knows nothing of that
 * way; the lock, which the first thread has held, orders the two. */
struct fs_handle *fs_handles_given(struct fs_handles *handles, uint64_t fh)
{
	pthread_mutex_lock(&handles->lock);
	pthread_mutex_unlock(&handles->lock);
	return (struct fs_handle *)(uintptr_t)fh;
}

void fs_handles_hold(struct fs_handles *handles, struct fs_handle *handle)
{
	pthread_mutex_lock(&handles->lock);
	handle->n_holds++;
	pthread_mutex_unlock(&handles->lock);
}

/* Lock held. */
static void handle_unlink(struct fs_handles *handles, struct fs_handle *handle)
{
	if (handle->prev)
		handle->prev->next = handle->next;
	else
		handles->head = handle->next;
	if (handle->next)
		handle->next->prev = handle->prev;
}

void fs_handles_close(struct fs_handles *handles, struct fs_handle *handle)
{
	bool last;

	pthread_mutex_lock(&handles->lock);
	last = --handle->n_holds == 0;
	if (last)
		handle_unlink(handles, handle);
	pthread_mutex_unlock(&handles->lock);
	if (!last)
		return;
	if (handle->file) {
		unshard_file_close(handle->file);
		atomic_fetch_sub(&handle->node->n_open, 1);
	}
	unshard_listing_free(handle->listing);
	free(handle);
}
