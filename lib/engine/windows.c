/* One number under a lock. A decoder that holds a window waits for nothing but storage and then
 * gives it back, so every thread that waits here gets its turn. */
#include "engine/windows.h"

void uns_windows_init(struct uns_windows *w, uint64_t max_bytes)
{
	*w = (struct uns_windows){ .max_bytes = max_bytes };
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
}

void uns_windows_fini(struct uns_windows *w)
{
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

bool uns_windows_take(struct uns_windows *w, uint64_t bytes)
{
	uint64_t mine;

	if (bytes > w->max_bytes)
		return false;
	pthread_mutex_lock(&w->lock);
	mine = w->n_came++;
	while (mine != w->n_served || bytes > w->max_bytes - w->held_bytes)
		pthread_cond_wait(&w->changed, &w->lock);
	w->n_served++;
	w->held_bytes += bytes;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return true;
}

void uns_windows_give_back(struct uns_windows *w, uint64_t bytes)
{
	pthread_mutex_lock(&w->lock);
	w->held_bytes -= bytes;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}
