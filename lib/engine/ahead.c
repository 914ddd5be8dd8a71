/* Threads that ask storage. All that they share is under one lock, which is never held while a system call may wait. */
#include "engine/ahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "io/pages.h"

enum {
	MOST_FILES = UNS_AHEAD_STORAGE_FDS, /* of one storage */
	MOST_STRETCHES = 64,
	IDLE_SECONDS = 1, /* of a thread; of a file that it has open */
	END_SECONDS = 1,
	BITE_BYTES = 1 << 20, /* then a reader may have gone */
	MOST_LOOKS = 64, /* then it is known whether to ask is to wait */
};

/* Made by the thread that asks first. Its descriptor is used without the lock, but only by threads that are asking. */
struct file {
	const struct uns_file *of;
	struct uns_identity id; /* `of` may be another's by now */
	int fd; /* of the description that readers have; -1 = there is no file here */
	int64_t used_ns;
	unsigned n_asking; /* threads that ask for a part of it now */
	bool let_go; /* and the last of these closes it */
};

struct stretch {
	unsigned file;
	uint64_t at, end, call_bytes;
	const void *reader;
};

/* What one storage is to be asked for. The last of its threads to end frees it. */
struct lane {
	SLIST_ENTRY(lane) next;
	struct uns_ahead *ahead;
	bool takes_work; /* until its last thread has waited for some in vain */
	unsigned n_threads, n_idle, most_threads; /* n_idle: of these, they wait for work */
	uint64_t dev;
	unsigned n_asked,
		n_waited; /* bites whose first byte no reader had asked for; of these, the call waited for it */
	pthread_cond_t added;
	struct file file[MOST_FILES];
	struct stretch stretch[MOST_STRETCHES]; /* the oldest first */
	unsigned n;
};

/* The thread that joins it frees it. */
struct worker {
	SLIST_ENTRY(worker) next;
	struct lane *lane; /* until it has ended */
	pthread_t thread;
	bool ended;
};

struct uns_ahead {
	struct uns_processors processors; /* of its threads */
	pthread_mutex_t lock;
	pthread_cond_t thread_ended;
	atomic_bool ending;
	bool left; /* uns_ahead_free has gone: a thread frees its worker, and the last one this */
	SLIST_HEAD(, worker) workers;
	SLIST_HEAD(, lane) lanes;
	unsigned n_lanes, most_lanes;
};

static struct timespec after(unsigned seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += seconds;
	return t;
}

/* -- the thread -- */

/* What a reader has asked for by itself shows nothing about asking. */
static bool is_new(const struct file *f, uint64_t at)
{
	uint64_t cached;

	return uns_pages_cached(f->fd, at, 1, &cached) && !cached;
}

/* *waited: the first byte had come when the call returned. NULL = no need to look. */
static void ask_for(const struct uns_ahead *a, const struct file *f, const struct stretch *s, bool *waited)
{
	uint64_t at = s->at, step;

	for (; at < s->end && !atomic_load(&a->ending); at += step) {
		step = uns_u64_min(s->end - at, s->call_bytes);
		posix_fadvise(f->fd, (off_t)at, (off_t)step, POSIX_FADV_WILLNEED);
		if (waited && at == s->at)
			*waited = uns_page_has_come(f->fd, at);
	}
}

/* Lock held. */
static void remove_stretch(struct lane *l, unsigned i)
{
	for (l->n--; i < l->n; i++)
		l->stretch[i] = l->stretch[i + 1];
}

/* Readers take turns: what else the bite's reader wants goes to the back, in order. Lock held. */
static struct stretch take_bite(struct lane *l)
{
	struct stretch bite = l->stretch[0], later[MOST_STRETCHES];
	unsigned i, n = 0, n_later = 0;

	bite.end = uns_u64_min(bite.end, bite.at + BITE_BYTES);
	l->stretch[0].at = bite.end;
	if (l->stretch[0].at == l->stretch[0].end)
		remove_stretch(l, 0);
	for (i = 0; i < l->n; i++)
		if (l->stretch[i].reader == bite.reader)
			later[n_later++] = l->stretch[i];
		else
			l->stretch[n++] = l->stretch[i];
	memcpy(l->stretch + n, later, n_later * sizeof(*later));
	return bite;
}

/* A file that was not used for so long. Lock held. */
static struct file take_idle(struct lane *l, int64_t idle_ns)
{
	const int64_t now_ns = uns_now_ns();
	struct file taken = { .fd = -1 };
	unsigned i, k;

	for (i = 0; i < MOST_FILES && taken.fd < 0; i++) {
		if (l->file[i].fd < 0 || l->file[i].n_asking || now_ns - l->file[i].used_ns < idle_ns)
			continue;
		for (k = 0; k < l->n && l->stretch[k].file != i; k++)
			;
		if (k < l->n)
			continue; /* more of it is wanted */
		taken = l->file[i];
		l->file[i].fd = -1;
	}
	return taken;
}

/* Lock held, but not while a file is closed: some file systems wait then, too. */
static void close_idle(struct lane *l, int64_t idle_ns)
{
	struct file f;

	while ((f = take_idle(l, idle_ns)).fd >= 0) {
		pthread_mutex_unlock(&l->ahead->lock);
		uns_close_p(&f.fd);
		pthread_mutex_lock(&l->ahead->lock);
	}
}

static void ahead_destroy(struct uns_ahead *a)
{
	pthread_cond_destroy(&a->thread_ended);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* Lock held. */
static void remove_lane(struct lane *l)
{
	struct uns_ahead *a = l->ahead;

	SLIST_REMOVE(&a->lanes, l, lane, next);
	a->n_lanes--;
	pthread_cond_destroy(&l->added);
	free(l);
}

/* Lock held. */
static void remove_worker(struct uns_ahead *a, struct worker *w)
{
	SLIST_REMOVE(&a->workers, w, worker, next);
	free(w);
}

/* Lock held; dropped for good. */
static void end_thread(struct worker *w)
{
	struct uns_ahead *a = w->lane->ahead;
	bool last = false;

	if (--w->lane->n_threads == 0)
		remove_lane(w->lane);
	w->ended = true;
	if (a->left) {
		remove_worker(a, w);
		last = SLIST_EMPTY(&a->workers);
	}
	pthread_cond_signal(&a->thread_ended);
	pthread_mutex_unlock(&a->lock);
	if (last)
		ahead_destroy(a);
}

/* Until there is work for this thread. Returns false if it is to end. Lock held. */
static bool wait_for_work(struct lane *l)
{
	const struct timespec until = after(IDLE_SECONDS);
	int code = 0;

	l->n_idle++;
	while (!l->n && !code && !atomic_load(&l->ahead->ending))
		code = pthread_cond_clockwait(&l->added, &l->ahead->lock, CLOCK_MONOTONIC, &until);
	l->n_idle--;
	return l->n && !atomic_load(&l->ahead->ending) && l->n_threads <= l->most_threads;
}

static bool add_worker(struct lane *l);

/* Another thread takes what is left to do. Lock held. */
static void share_work(struct lane *l)
{
	if (l->n && l->n_idle)
		pthread_cond_signal(&l->added);
	else if (l->n && l->n_threads < l->most_threads)
		add_worker(l);
}

/* Lock held, but not while storage is asked. */
static void ask_for_bite(struct lane *l)
{
	const struct stretch bite = take_bite(l);
	struct file *f = &l->file[bite.file];
	const bool looks = l->n_asked < MOST_LOOKS;
	bool counts, waited = false;

	f->n_asking++;
	share_work(l);
	pthread_mutex_unlock(&l->ahead->lock);
	counts = looks && is_new(f, bite.at);
	ask_for(l->ahead, f, &bite, counts ? &waited : NULL);
	pthread_mutex_lock(&l->ahead->lock);
	l->n_asked += counts;
	l->n_waited += counts && waited;
	f->n_asking--;
	f->used_ns = f->let_go ? 0 : uns_now_ns();
	close_idle(l, IDLE_SECONDS * INT64_C(1000000000));
}

static void *worker_run(void *ctx)
{
	struct worker *w = ctx;
	struct lane *l = w->lane;

	pthread_mutex_lock(&l->ahead->lock);
	while (wait_for_work(l))
		ask_for_bite(l);
	if (l->n_threads == 1) {
		l->takes_work = false; /* what comes now begins another */
		l->n = 0;
		close_idle(l, 0);
	} else if (l->n) { /* it was woken for this, but there are more threads than there may be now */
		pthread_cond_signal(&l->added);
	}
	end_thread(w);
	return NULL;
}

/* -- the readers, which want something -- */

/* Waits only for a thread to return, which needs nothing more. Lock held. */
static void join_ended(struct uns_ahead *a)
{
	struct worker *w, *next;

	for (w = SLIST_FIRST(&a->workers); w; w = next) {
		next = SLIST_NEXT(w, next);
		if (w->ended) {
			pthread_join(w->thread, NULL);
			remove_worker(a, w);
		}
	}
}

/* false = there cannot be another. Lock held. */
static bool add_worker(struct lane *l)
{
	struct uns_ahead *a = l->ahead;
	struct worker *w;

	join_ended(a);
	w = calloc(1, sizeof(*w));
	if (!w)
		return false;
	w->lane = l;
	if (uns_thread_begin_small(&w->thread, &a->processors, worker_run, w) != 0) {
		free(w);
		return false;
	}
	l->n_threads++;
	SLIST_INSERT_HEAD(&a->workers, w, next);
	return true;
}

/* NULL = there cannot be another. Lock held. */
static struct lane *add_lane(struct uns_ahead *a, uint64_t dev)
{
	struct lane *l;
	unsigned i;

	l = a->n_lanes < a->most_lanes ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return NULL;
	l->ahead = a;
	l->takes_work = true;
	l->dev = dev;
	for (i = 0; i < MOST_FILES; i++)
		l->file[i].fd = -1;
	pthread_cond_init(&l->added, NULL);
	a->n_lanes++;
	SLIST_INSERT_HEAD(&a->lanes, l, next);
	if (add_worker(l))
		return l;
	remove_lane(l);
	return NULL;
}

/* MOST_FILES = there is no room for it. Lock held. */
static unsigned file_of(struct lane *l, const struct uns_ahead_ask *ask)
{
	unsigned i, room = MOST_FILES;

	for (i = 0; i < MOST_FILES; i++) {
		if (l->file[i].fd < 0)
			room = i;
		else if (l->file[i].of == ask->file && uns_identity_equal(&l->file[i].id, &ask->file->stat.id))
			return i;
	}
	if (room == MOST_FILES)
		return room;
	l->file[room] = (struct file){ .of = ask->file,
				       .id = ask->file->stat.id,
				       .fd = fcntl(ask->fd, F_DUPFD_CLOEXEC, 0),
				       .used_ns = uns_now_ns() };
	return l->file[room].fd < 0 ? MOST_FILES : room;
}

/* Lock held. */
static bool add_stretch(struct lane *l, unsigned file, const struct uns_ahead_ask *ask)
{
	struct stretch *s;

	for (s = l->stretch; s < l->stretch + l->n; s++)
		if (s->file == file && s->reader == ask->reader && s->end == ask->at) {
			s->end = ask->end;
			return true;
		}
	if (l->n == MOST_STRETCHES)
		return false;
	l->stretch[l->n++] = (struct stretch){ file, ask->at, ask->end, ask->call_bytes, ask->reader };
	return true;
}

bool uns_ahead_ask(struct uns_ahead *a, const struct uns_ahead_ask *ask)
{
	struct lane *l;
	unsigned file = MOST_FILES;
	bool added;

	pthread_mutex_lock(&a->lock);
	SLIST_FOREACH(l, &a->lanes, next)
	if (l->takes_work && l->dev == ask->file->stat.id.dev)
		break;
	if (!l)
		l = add_lane(a, ask->file->stat.id.dev);
	if (l) {
		l->most_threads = ask->most_threads;
		file = file_of(l, ask);
	}
	added = file < MOST_FILES && add_stretch(l, file, ask);
	if (added) /* storage may hold up those that there are */
		share_work(l);
	pthread_mutex_unlock(&a->lock);
	return added;
}

void uns_ahead_forget(struct uns_ahead *a, const void *reader)
{
	struct lane *l;
	unsigned i;

	pthread_mutex_lock(&a->lock);
	SLIST_FOREACH(l, &a->lanes, next)
	for (i = l->n; i-- > 0;)
		if (l->stretch[i].reader == reader)
			remove_stretch(l, i);
	pthread_mutex_unlock(&a->lock);
}

bool uns_ahead_waits(struct uns_ahead *a, uint64_t dev)
{
	const struct lane *l;
	bool waits;

	pthread_mutex_lock(&a->lock);
	SLIST_FOREACH(l, &a->lanes, next)
	if (l->takes_work && l->dev == dev)
		break;
	waits = !l || 2 * l->n_waited >= l->n_asked;
	pthread_mutex_unlock(&a->lock);
	return waits;
}

/* Of the file in this place nothing more is wanted. Returns its descriptor, -1 if the thread is to close it. Lock held.
 */
static int let_go_of(struct lane *l, unsigned file)
{
	struct file *f = &l->file[file];
	const int fd = f->n_asking ? -1 : f->fd;
	unsigned i;

	for (i = l->n; i-- > 0;)
		if (l->stretch[i].file == file)
			remove_stretch(l, i);
	f->let_go = f->n_asking > 0;
	if (!f->n_asking)
		f->fd = -1;
	return fd;
}

/* A descriptor of the file; -1 = there is none. Lock held. */
static int take_of(struct uns_ahead *a, const struct uns_file *file)
{
	struct lane *l;
	unsigned i;
	int fd = -1;

	SLIST_FOREACH(l, &a->lanes, next)
	for (i = 0; i < MOST_FILES && fd < 0; i++)
		if (l->file[i].fd >= 0 && l->file[i].of == file)
			fd = let_go_of(l, i);
	return fd;
}

void uns_ahead_let_go(struct uns_ahead *a, const struct uns_file *file)
{
	int fd;

	do {
		pthread_mutex_lock(&a->lock);
		fd = take_of(a, file);
		pthread_mutex_unlock(&a->lock);
		uns_close_p(&fd); /* some file systems wait then */
	} while (fd >= 0);
}

/* -- life -- */

int uns_ahead_new(unsigned most_storages, struct uns_ahead **out, struct uns_err *err)
{
	struct uns_ahead *a = calloc(1, sizeof(*a));

	UNS_TRY_ALLOC(a, err);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->thread_ended, NULL);
	SLIST_INIT(&a->workers);
	SLIST_INIT(&a->lanes);
	a->most_lanes = most_storages;
	uns_processors_take(&a->processors);
	*out = a;
	return 0;
}

/* Waits a while for threads to end. Lock held. */
static void end_threads(struct uns_ahead *a)
{
	const struct timespec until = after(END_SECONDS);
	struct lane *l;
	int code = 0;

	atomic_store(&a->ending, true);
	SLIST_FOREACH(l, &a->lanes, next)
	pthread_cond_broadcast(&l->added);
	for (join_ended(a); !SLIST_EMPTY(&a->workers) && !code; join_ended(a))
		code = pthread_cond_clockwait(&a->thread_ended, &a->lock, CLOCK_MONOTONIC, &until);
}

void uns_ahead_free(struct uns_ahead *a)
{
	struct worker *w;
	bool left;

	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	end_threads(a);
	SLIST_FOREACH(w, &a->workers, next)
	pthread_detach(w->thread);
	a->left = left = !SLIST_EMPTY(&a->workers);
	pthread_mutex_unlock(&a->lock);
	if (!left)
		ahead_destroy(a);
}
