/* Memory for small things that stay, among many that go: each lies in a block with others of its kind, and so keeps
 * no page of the heap in which the others lay. A block is freed with the last thing in it. Threads: any. */
#ifndef UNS_BASE_COHORT_H
#define UNS_BASE_COHORT_H

#include <pthread.h>
#include <stddef.h>

struct uns_cohorts {
	pthread_mutex_t lock;
	struct uns_cohort *newest; /* the block that has room */
};

void uns_cohorts_init(struct uns_cohorts *cohorts);
void uns_cohorts_fini(struct uns_cohorts *cohorts); /* all was given back */
/* 8-byte aligned; NULL = out of memory. */
void *uns_cohorts_take(struct uns_cohorts *cohorts, size_t size);
void uns_cohorts_give_back(void *taken);

#endif
