/* The last lines of something that has no end. Threads: any. */
#ifndef UNS_BASE_RING_H
#define UNS_BASE_RING_H

#include <pthread.h>

#include "base/text.h"

enum { UNS_RING_LINES = 256 };

struct uns_ring {
	pthread_mutex_t lock;
	char *line[UNS_RING_LINES];
	size_t n; /* lines that there ever were */
};

void uns_ring_init(struct uns_ring *ring);
void uns_ring_fini(struct uns_ring *ring);
void uns_ring_add(struct uns_ring *ring, char *line); /* malloc'd, and the ring's from here on; or NULL */
void uns_ring_print(struct uns_ring *ring, struct uns_text *out); /* oldest first */

#endif
