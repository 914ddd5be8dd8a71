/* Listings that many captures want: a run's directory is looked at for each of its checkpoints. Listing and sorting it
 * again each time would cost as much as the run has checkpoints, for each of them. */
#ifndef UNS_IO_KEPT_LIST_H
#define UNS_IO_KEPT_LIST_H

#include <pthread.h>

#include "io/source.h"

enum { UNS_KEPT_LISTS = 4 };

struct uns_kept_list;

struct uns_kept_lists {
	pthread_mutex_t lock;
	struct uns_kept_list *v[UNS_KEPT_LISTS]; /* the last used first; NULL = none */
};

void uns_kept_lists_init(struct uns_kept_lists *lists);
void uns_kept_lists_fini(struct uns_kept_lists *lists);

/* The names in directory `rel`, which is open as `fd` and was `now` just before: those that were listed before if the
 * directory is still the same and had been so for a while then; else it is listed. *out is const and shared: give
 * *kept back when it is no longer needed. Threads: any number at once. */
int uns_list_kept(struct uns_kept_lists *lists, const struct uns_root *root, const char *rel, int fd,
		  const struct uns_stat *now, struct uns_kept_list **kept, struct uns_listing *out,
		  struct uns_err *err);
void uns_kept_list_put(struct uns_kept_list *kept); /* NULL is allowed */

#endif
