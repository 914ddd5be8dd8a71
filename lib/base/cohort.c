/* See cohort.h. Things are taken from a block one behind the other, each with the block's address before it. Room of
 * what was given back is not used again: the block goes when all of it was. */
#include "base/cohort.h"

#include <stdalign.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 16 << 10 };

struct uns_cohort {
	unsigned n; /* atomic: things in it, and 1 while it is the newest */
	size_t size, used;
	alignas(max_align_t) unsigned char bytes[];
};

struct thing {
	struct uns_cohort *in;
	alignas(8) unsigned char bytes[];
};

void uns_cohorts_init(struct uns_cohorts *cohorts)
{
	pthread_mutex_init(&cohorts->lock, NULL);
	cohorts->newest = NULL;
}

static void cohort_unref(struct uns_cohort *cohort)
{
	if (cohort && __atomic_sub_fetch(&cohort->n, 1, __ATOMIC_ACQ_REL) == 0)
		free(cohort);
}

void uns_cohorts_fini(struct uns_cohorts *cohorts)
{
	cohort_unref(cohorts->newest);
	pthread_mutex_destroy(&cohorts->lock);
}

static struct uns_cohort *cohort_with_room(struct uns_cohorts *cohorts, size_t need)
{
	struct uns_cohort *cohort = cohorts->newest;
	const size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;

	if (cohort && cohort->size - cohort->used >= need)
		return cohort;
	cohort = malloc(sizeof(*cohort) + size);
	if (!cohort)
		return NULL;
	*cohort = (struct uns_cohort){ .n = 1, .size = size };
	cohort_unref(cohorts->newest);
	cohorts->newest = cohort;
	return cohort;
}

void *uns_cohorts_take(struct uns_cohorts *cohorts, size_t size)
{
	const size_t need = (sizeof(struct thing) + size + 7) & ~(size_t)7;
	struct thing *thing = NULL;
	struct uns_cohort *cohort;

	pthread_mutex_lock(&cohorts->lock);
	cohort = cohort_with_room(cohorts, need);
	if (cohort) {
		thing = (struct thing *)(cohort->bytes + cohort->used);
		thing->in = cohort;
		cohort->used += need;
		__atomic_add_fetch(&cohort->n, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&cohorts->lock);
	return thing ? thing->bytes : NULL;
}

void uns_cohorts_give_back(void *taken)
{
	if (taken)
		cohort_unref(((struct thing *)((unsigned char *)taken - offsetof(struct thing, bytes)))->in);
}
