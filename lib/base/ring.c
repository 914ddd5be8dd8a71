/* An array that is written round and round. */
#include "base/ring.h"

#include <stdlib.h>
#include <string.h>

void uns_ring_init(struct uns_ring *ring)
{
	memset(ring, 0, sizeof(*ring));
	pthread_mutex_init(&ring->lock, NULL);
}

void uns_ring_fini(struct uns_ring *ring)
{
	size_t i;

	for (i = 0; i < UNS_RING_LINES; i++)
		free(ring->line[i]);
	pthread_mutex_destroy(&ring->lock);
}

void uns_ring_add(struct uns_ring *ring, char *line)
{
	char *was, **slot;

	if (!line)
		return;
	uns_one_line(line, strlen(line));
	pthread_mutex_lock(&ring->lock);
	slot = &ring->line[ring->n++ % UNS_RING_LINES];
	was = *slot;
	*slot = line;
	pthread_mutex_unlock(&ring->lock);
	free(was);
}

void uns_ring_print(struct uns_ring *ring, struct uns_text *out)
{
	size_t i;

	pthread_mutex_lock(&ring->lock);
	for (i = ring->n > UNS_RING_LINES ? ring->n - UNS_RING_LINES : 0; i < ring->n; i++)
		uns_text_printf(out, "%s\n", ring->line[i % UNS_RING_LINES]);
	pthread_mutex_unlock(&ring->lock);
}
