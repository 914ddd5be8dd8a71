/* A job is one call of uns_pool_each: a range of item numbers. Idle workers take items of any job.
 * The caller takes items of its own job only, so a job ends even when every worker is busy.
 *
 * Items may call uns_pool_each, and this cannot end in a deadlock. A thread waits only for items of
 * the job that it made itself, which other threads have begun. If such an item waits, it does so
 * for a job that it made itself. So waiting always leads from a job to jobs made by its items,
 * never back. A thread that waits takes no items of other jobs meanwhile: otherwise it might take
 * one that waits for its own. */
#include "base/pool.h"

#include <stdlib.h>

struct job {
	struct job *next;
	size_t n, taken, running;
	int (*work)(void *ctx, size_t i, struct uns_err *err);
	void *ctx;
	struct uns_err err;
	int code;
};

struct uns_pool {
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t work_added, item_done;
	struct job *jobs;
	struct uns_processors processors;
	pthread_t *thread;
	unsigned n_threads, n_started, n_idle;
	bool stop;
};

int uns_pool_new(unsigned n_threads, const struct uns_processors *where, struct uns_pool **out, struct uns_err *err)
{
	struct uns_pool *pool = calloc(1, sizeof(*pool));

	if (!pool || !(pool->thread = calloc(n_threads ? n_threads : 1, sizeof(pthread_t)))) {
		free(pool);
		return uns_oom(err);
	}
	if (where)
		pool->processors = *where;
	else
		uns_processors_take(&pool->processors);
	pool->n_threads = n_threads;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work_added, NULL);
	pthread_cond_init(&pool->item_done, NULL);
	*out = pool;
	return 0;
}

static bool job_has_items(const struct job *job)
{
	return job->taken < job->n && job->code == 0;
}

/* The lock is held on entry and return, and dropped while the item runs. */
static void run_one(struct uns_pool *pool, struct job *job)
{
	struct uns_err err = { 0 };
	size_t i = job->taken++;
	int code;

	job->running++;
	pthread_mutex_unlock(&pool->lock);
	code = job->work(job->ctx, i, &err);
	pthread_mutex_lock(&pool->lock);
	if (code < 0 && job->code == 0) {
		job->code = code;
		job->err = err;
	}
	job->running--;
	if (!job_has_items(job) && job->running == 0)
		pthread_cond_broadcast(&pool->item_done);
}

static struct job *job_find(struct uns_pool *pool)
{
	struct job *job;

	for (job = pool->jobs; job; job = job->next)
		if (job_has_items(job))
			return job;
	return NULL;
}

static void *worker(void *arg)
{
	struct uns_pool *pool = arg;
	struct job *job;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		job = job_find(pool);
		if (job) {
			run_one(pool, job);
			continue;
		}
		pool->n_idle++;
		pthread_cond_wait(&pool->work_added, &pool->lock);
		pool->n_idle--;
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Lets up to n workers look for items: first those that wait, then new ones. Waking all of many for the few items of a
 * small job would cost more than the items. A worker that is still at another job's items finds these afterwards. */
static void call_workers(struct uns_pool *pool, size_t n)
{
	size_t called;

	for (called = 0; called < n && called < pool->n_idle; called++)
		pthread_cond_signal(&pool->work_added);
	for (; called < n && pool->n_started < pool->n_threads; called++) {
		if (uns_thread_begin(&pool->thread[pool->n_started], &pool->processors, worker, pool) != 0)
			pool->n_threads = pool->n_started; /* fewer are enough: the caller works too */
		else
			pool->n_started++;
	}
}

static void job_unlink(struct uns_pool *pool, struct job *job)
{
	struct job **p = &pool->jobs;

	while (*p != job)
		p = &(*p)->next;
	*p = job->next;
}

int uns_pool_each(struct uns_pool *pool, size_t n, int (*work)(void *ctx, size_t i, struct uns_err *err), void *ctx,
		  struct uns_err *err)
{
	struct job job = { .n = n, .work = work, .ctx = ctx };

	pthread_mutex_lock(&pool->lock);
	job.next = pool->jobs;
	pool->jobs = &job;
	if (n > 1)
		call_workers(pool, n - 1);
	while (job_has_items(&job))
		run_one(pool, &job);
	while (job.running)
		pthread_cond_wait(&pool->item_done, &pool->lock);
	job_unlink(pool, &job);
	pthread_mutex_unlock(&pool->lock);
	return job.code ? uns_fail(err, job.code, "%s", job.err.text) : 0;
}

void uns_pool_free(struct uns_pool *pool)
{
	unsigned i;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work_added);
	pthread_mutex_unlock(&pool->lock);
	for (i = 0; i < pool->n_started; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_mutex_destroy(&pool->lock);
	pthread_cond_destroy(&pool->work_added);
	pthread_cond_destroy(&pool->item_done);
	free(pool->thread);
	free(pool);
}
