/* One list of all requests that were received and not finished: few run, the others are parked. A thread that has
 * finished one takes a parked one, so none is left behind. */
#include "waits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "asker.h"
#include "join.h"
#include "ops.h"

enum { LOOK_MS = 100 }; /* how often the watch looks */

static const int64_t ms_ns = 1000000, long_ns = 1000000000;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void fs_waits_init(struct fs_waits *waits, unsigned most)
{
	*waits = (struct fs_waits){ .most = most };
	TAILQ_INIT(&waits->all);
	pthread_mutex_init(&waits->lock, NULL);
	pthread_cond_init(&waits->changed, NULL);
}

/* -- one -- */

/* NULL: the request was answered ENOMEM. */
static struct fs_wait *wait_new(const struct fs_wait *asked, const char *name)
{
	size_t n = name ? strlen(name) + 1 : 1;
	struct fs_wait *wait = malloc(sizeof(*wait) + n);

	if (!wait) {
		fuse_reply_err(asked->req, ENOMEM);
		return NULL;
	}
	*wait = *asked;
	wait->fs = fuse_req_userdata(asked->req);
	memcpy(wait->name, name ? name : "", n);
	wait->device = unshard_node_device(wait->node->node, wait->of_node ? NULL : name);
	fs_nodes_hold(&wait->fs->nodes, wait->node);
	if (wait->handle)
		fs_handles_hold(&wait->fs->handles, wait->handle);
	return wait;
}

static void wait_free(struct fs_wait *wait)
{
	if (wait->handle)
		fs_handles_close(&wait->fs->handles, wait->handle);
	fs_nodes_forget(&wait->fs->nodes, wait->node, 1);
	free(wait);
}

fuse_req_t fs_wait_take(struct fs_wait *wait)
{
	struct fs_waits *waits = &wait->fs->waits;
	bool answered;

	pthread_mutex_lock(&waits->lock);
	answered = wait->answered;
	wait->answered = true;
	pthread_mutex_unlock(&waits->lock);
	return answered ? NULL : wait->req;
}

bool fs_wait_is_over(struct fs_wait *wait)
{
	struct fs_waits *waits = &wait->fs->waits;
	bool answered;

	pthread_mutex_lock(&waits->lock);
	answered = wait->answered;
	pthread_mutex_unlock(&waits->lock);
	return answered;
}

/* -- all; lock held -- */

static bool is_same(const struct fs_wait *a, const struct fs_wait *b)
{
	return a->work == b->work && a->node == b->node && strcmp(a->name, b->name) == 0;
}

/* What waits for the same is on the same file system: when one of them ends, at most one can run in its place. */
static void join_same(const struct fs_waits *waits, struct fs_wait *wait)
{
	const struct fs_wait *other;

	TAILQ_FOREACH(other, &waits->all, next)
	if (wait->alone && is_same(other, wait))
		wait->device = other->device;
}

static bool may_run(const struct fs_waits *waits, const struct fs_wait *wait)
{
	const struct fs_wait *other;
	unsigned n = 0;

	if (!wait->device)
		return true;
	TAILQ_FOREACH(other, &waits->all, next)
	{
		if (!other->running)
			continue;
		if (wait->alone && is_same(other, wait))
			return false;
		n += other->device == wait->device;
	}
	return n < waits->most;
}

static void wait_add(struct fs_waits *waits, struct fs_wait *wait)
{
	wait->began_ns = waits->asked_ns = now_ns();
	wait->running = wait->answered = false;
	join_same(waits, wait);
	wait->running = may_run(waits, wait);
	TAILQ_INSERT_TAIL(&waits->all, wait, next);
	waits->n++;
	if (waits->asleep)
		pthread_cond_signal(&waits->changed);
}

static void wait_remove(struct fs_waits *waits, struct fs_wait *wait)
{
	TAILQ_REMOVE(&waits->all, wait, next);
	waits->n--;
}

/* One that ran on the device has ended: the first parked one that may run now; NULL = none. On other devices there is
 * no more room than before. */
static struct fs_wait *take_parked(struct fs_waits *waits, uint64_t device)
{
	struct fs_wait *wait;

	TAILQ_FOREACH(wait, &waits->all, next)
	if (!wait->running && wait->device == device && may_run(waits, wait))
		break;
	if (wait)
		wait->running = true;
	return wait;
}

/* -- running -- */

/* Once the mount has ended, what is parked stays so. */
static void run(struct fs_wait *wait)
{
	struct fs_waits *waits = &wait->fs->waits;
	struct fs_wait *done;

	pthread_mutex_lock(&waits->lock);
	wait_add(waits, wait);
	if (!wait->running)
		wait = NULL;
	pthread_mutex_unlock(&waits->lock);
	while (wait) {
		wait->work(wait);
		done = wait;
		pthread_mutex_lock(&waits->lock);
		wait_remove(waits, done);
		wait = fuse_session_exited(done->fs->se) ? NULL : take_parked(waits, done->device);
		pthread_mutex_unlock(&waits->lock);
		wait_free(done);
	}
}

void fs_answer(const struct fs_wait *asked, const char *name)
{
	struct fs_wait *wait = wait_new(asked, name);

	if (wait)
		run(wait);
}

int64_t fs_waits_asked_ns(struct fs_waits *waits, int64_t quiet_ns)
{
	int64_t asked_ns;

	pthread_mutex_lock(&waits->lock);
	asked_ns = waits->n || now_ns() - waits->asked_ns < quiet_ns ? 0 : waits->asked_ns;
	pthread_mutex_unlock(&waits->lock);
	return asked_ns;
}

/* -- the watch -- */

/* Answers it, if it is time to. */
static void look_at(struct fs_wait *wait, int64_t now)
{
	const bool is_long = now - wait->began_ns > long_ns;

	if (wait->answered || now - wait->began_ns < LOOK_MS * ms_ns / 2)
		return;
	if (is_long && wait->late)
		wait->late(wait->req, wait->fs);
	else if (fuse_req_interrupted(wait->req) && fs_asker_ends(fuse_req_ctx(wait->req)->pid, is_long))
		fuse_reply_err(wait->req, EINTR);
	else
		return;
	wait->answered = true;
}

/* Those that are parked and answered, out of the list. */
static void take_answered(struct fs_waits *waits, struct fs_wait_list *out)
{
	struct fs_wait *wait, *next;

	for (wait = TAILQ_FIRST(&waits->all); wait; wait = next) {
		next = TAILQ_NEXT(wait, next);
		if (wait->running || !wait->answered)
			continue;
		wait_remove(waits, wait);
		TAILQ_INSERT_TAIL(out, wait, next);
	}
}

static void free_all(struct fs_wait_list *list)
{
	struct fs_wait *wait;

	while ((wait = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, wait, next);
		wait_free(wait);
	}
}

/* While nothing waits, until something does. Lock held. */
static void watch_sleep(struct fs_waits *waits)
{
	struct timespec until;
	int64_t until_ns = now_ns() + LOOK_MS * ms_ns;

	until.tv_sec = until_ns / 1000000000;
	until.tv_nsec = until_ns % 1000000000;
	waits->asleep = !waits->n;
	if (waits->asleep)
		pthread_cond_wait(&waits->changed, &waits->lock);
	else
		pthread_cond_clockwait(&waits->changed, &waits->lock, CLOCK_MONOTONIC, &until);
	waits->asleep = false;
}

static void *watch_run(void *ctx)
{
	struct fs_waits *waits = ctx;
	struct fs_wait_list over;
	struct fs_wait *wait;
	int64_t now;

	pthread_mutex_lock(&waits->lock);
	while (!waits->ended) {
		TAILQ_INIT(&over);
		now = now_ns();
		TAILQ_FOREACH(wait, &waits->all, next)
		look_at(wait, now);
		take_answered(waits, &over);
		if (!TAILQ_EMPTY(&over)) {
			pthread_mutex_unlock(&waits->lock);
			free_all(&over);
			pthread_mutex_lock(&waits->lock);
		}
		if (!waits->ended)
			watch_sleep(waits);
	}
	pthread_mutex_unlock(&waits->lock);
	return NULL;
}

void fs_waits_start(struct fs_waits *waits)
{
	waits->ended = false;
	waits->has_watch = pthread_create(&waits->watch, NULL, watch_run, waits) == 0;
}

bool fs_waits_stop(struct fs_waits *waits, const struct timespec *until)
{
	pthread_mutex_lock(&waits->lock);
	waits->ended = true;
	pthread_cond_signal(&waits->changed);
	pthread_mutex_unlock(&waits->lock);
	if (waits->has_watch && !fs_join(waits->watch, until))
		return false;
	waits->has_watch = false;
	return true;
}

void fs_waits_give_up(struct fs_waits *waits)
{
	struct fs_wait *wait;

	pthread_mutex_lock(&waits->lock);
	TAILQ_FOREACH(wait, &waits->all, next)
	{
		if (!wait->answered)
			fuse_reply_err(wait->req, ENOTCONN);
		wait->answered = true;
	}
	pthread_mutex_unlock(&waits->lock);
}

void fs_waits_fini(struct fs_waits *waits)
{
	free_all(&waits->all);
	pthread_cond_destroy(&waits->changed);
	pthread_mutex_destroy(&waits->lock);
}
