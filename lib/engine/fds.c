/* The table of descriptors. Each source file has a slot; a slot is closed, open and idle, or open
 * and pinned by readers. Idle slots form a list in order of last use. One lock guards all of it,
 * and is dropped while a file is opened or closed.
 *
 * Before a file is opened its descriptor is counted: at max_open the oldest idle slot is closed
 * first, or one is waited for. When the process runs out of descriptors all the same (others use
 * them too), the same is done at once, for this file only: the next file finds max_open as it was. */
#include "engine/fds.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/numbers.h"

/* After its last use, or after it was seen to have no name. */
static const int64_t longest_idle_ns = 1000000000;

/* For so long the kernel's word is taken for a file's identity. */
static const int64_t longest_unasked_ns = 1000000000;

/* What the program itself, FUSE and the store may need; where there are few, all but an eighth. */
enum { RESERVED_FDS = 64, MOST_FDS = 1 << 16 };

size_t uns_fds_budget(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return 256;
	if (lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur > MOST_FDS)
		return MOST_FDS - RESERVED_FDS;
	return lim.rlim_cur > 2 * RESERVED_FDS ? lim.rlim_cur - RESERVED_FDS : lim.rlim_cur / 8 + 1;
}

void uns_fds_init(struct uns_fds *fds, size_t max_open, struct uns_counters *count)
{
	*fds = (struct uns_fds){ .count = count, .max_open = max_open };
	TAILQ_INIT(&fds->idle);
	pthread_mutex_init(&fds->lock, NULL);
	pthread_cond_init(&fds->room, NULL);
	pthread_cond_init(&fds->opened, NULL);
	pthread_cond_init(&fds->answered, NULL);
	pthread_cond_init(&fds->wanted, NULL);
	uns_processors_take(&fds->processors);
}

void uns_fds_fini(struct uns_fds *fds)
{
	pthread_mutex_lock(&fds->lock);
	fds->ending = true;
	pthread_cond_signal(&fds->wanted);
	pthread_mutex_unlock(&fds->lock);
	if (fds->has_closer)
		pthread_join(fds->closer, NULL);
	pthread_cond_destroy(&fds->wanted);
	pthread_cond_destroy(&fds->answered);
	pthread_cond_destroy(&fds->opened);
	pthread_cond_destroy(&fds->room);
	pthread_mutex_destroy(&fds->lock);
}

/* -- the idle list -- */

static void idle_remove(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	TAILQ_REMOVE(&fds->idle, slot, idle);
	slot->is_idle = false;
}

static void idle_add(struct uns_fds *fds, struct uns_fd_slot *slot, int64_t now_ns)
{
	TAILQ_INSERT_TAIL(&fds->idle, slot, idle);
	slot->is_idle = true;
	slot->used_ns = now_ns;
}

static void count_open(struct uns_fds *fds, int change)
{
	fds->n_open += (size_t)change;
	uns_count(&fds->count->open_files, (uint64_t)(int64_t)change);
	if (change < 0) /* not every waiter can use it */
		pthread_cond_broadcast(&fds->room);
}

/* Give up an open idle slot; the descriptor is the caller's to close once the lock is dropped. */
static int slot_release(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	idle_remove(fds, slot);
	slot->is_open = false;
	count_open(fds, -1);
	return slot->fd;
}

/* -- closing what is idle -- */

/* Of an idle slot a second after its last use. Lock held. */
static bool is_used_with_others(const struct uns_fd_slot *slot, int64_t now_ns)
{
	return slot->name && now_ns - *slot->checkpoint_used_ns < longest_idle_ns &&
	       uns_fd_name(slot->fd) == slot->name;
}

/* Until the oldest idle file is due; while all are pinned, none is due for so long. Lock held. */
static void closer_wait(struct uns_fds *fds)
{
	const struct uns_fd_slot *oldest = TAILQ_FIRST(&fds->idle);
	const int64_t due_ns = (oldest ? oldest->used_ns : uns_now_ns()) + longest_idle_ns;
	const struct timespec until = { due_ns / 1000000000, due_ns % 1000000000 };

	fds->asleep = !fds->n_open;
	if (fds->asleep)
		pthread_cond_wait(&fds->wanted, &fds->lock);
	else
		pthread_cond_clockwait(&fds->wanted, &fds->lock, CLOCK_MONOTONIC, &until);
	fds->asleep = false;
}

static void *closer_run(void *ctx)
{
	struct uns_fds *fds = ctx;
	struct uns_fd_slot *oldest;
	int64_t now_ns;
	int fd;

	pthread_mutex_lock(&fds->lock);
	while (!fds->ending) {
		oldest = TAILQ_FIRST(&fds->idle);
		now_ns = uns_now_ns();
		if (!oldest || now_ns - oldest->used_ns < longest_idle_ns) {
			closer_wait(fds);
			continue;
		}
		if (is_used_with_others(oldest, now_ns)) {
			idle_remove(fds, oldest);
			idle_add(fds, oldest, now_ns);
			continue;
		}
		fd = slot_release(fds, oldest);
		pthread_mutex_unlock(&fds->lock);
		uns_close_p(&fd);
		pthread_mutex_lock(&fds->lock);
	}
	pthread_mutex_unlock(&fds->lock);
	return NULL;
}

/* Where no thread can begin, the next file that becomes idle tries again. Lock held. */
static void closer_wake(struct uns_fds *fds)
{
	if (!fds->has_closer)
		fds->has_closer = uns_thread_begin_small(&fds->closer, &fds->processors, closer_run, fds) == 0;
	else if (fds->asleep)
		pthread_cond_signal(&fds->wanted);
}

/* -- opening -- */

static int fail_stale(const struct uns_file *file, struct uns_err *err, const char *how)
{
	return uns_fail(err, -ESTALE,
			"%s/%s: the file %s after unshard read the checkpoint's metadata; its data are not shown",
			uns_root_path(file->root), file->path, how);
}

static int fail_changed(const struct uns_file *file, const struct uns_identity *now, struct uns_err *err)
{
	const struct uns_identity *was = &file->stat.id;

	if (now->dev != was->dev || now->mount != was->mount || now->ino != was->ino)
		return fail_stale(file, err, "was replaced by another file");
	if (now->size != was->size)
		return uns_fail(err, -ESTALE,
				"%s/%s: the file had %llu bytes when unshard read the "
				"checkpoint's metadata and has %llu now; its data are not shown",
				uns_root_path(file->root), file->path, (unsigned long long)was->size,
				(unsigned long long)now->size);
	return fail_stale(file, err, "was written to");
}

static int open_checked(const struct uns_file *file, int *out, uint64_t *nlink, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_err why = { 0 };
	struct uns_stat now;
	int code;

	if (file->missing)
		return uns_fail(err, -ENODATA, "%s/%s is missing", uns_root_path(file->root), file->path);
	code = uns_root_open_file(file->root, file->path, &fd, &now, &why);
	if (code == -ENOENT)
		return fail_stale(file, err, "was removed");
	if (code < 0)
		return uns_fail_copy(err, &why);
	if (!uns_identity_equal(&now.id, &file->stat.id))
		return fail_changed(file, &now.id, err);
	*nlink = now.nlink;
	*out = fd;
	fd = -1;
	return 0;
}

/* Count one more open file; another one may have to be closed for it, whose descriptor is returned, else -1. `scarce`:
 * the process had no descriptor left, so that another one must be closed, unless none is open. Lock held; waits. */
static int reserve(struct uns_fds *fds, bool scarce)
{
	const size_t max = scarce ? 1 : fds->max_open;
	int victim = -1;

	while (fds->n_open >= max && TAILQ_EMPTY(&fds->idle))
		pthread_cond_wait(&fds->room, &fds->lock);
	if (fds->n_open >= max)
		victim = slot_release(fds, TAILQ_FIRST(&fds->idle));
	count_open(fds, 1);
	return victim;
}

/* Lock held on entry and return, dropped around the I/O. 1 = the process has no descriptor left,
 * but other files are open: try again as `scarce`. */
static int slot_open(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file, bool scarce,
		     struct uns_err *err)
{
	const struct uns_identity *id = &file->stat.id;
	struct uns_err why = { 0 };
	struct uns_direct direct = { 0 };
	uint64_t nlink = 0;
	bool as_asked = false, no_pages = false;
	uint64_t name = 0;
	int victim, fd = -1, code;

	victim = reserve(fds, scarce);
	pthread_mutex_unlock(&fds->lock);
	uns_close_p(&victim);
	code = open_checked(file, &fd, &nlink, &why);
	if (code == 0 && slot->past_cache)
		uns_direct_begin(&direct, fd);
	else if (code == 0)
		no_pages = !uns_fd_reads_pages(fd, id);
	if (code == 0 && !slot->past_cache && slot->foreseen)
		as_asked = uns_fd_read_as_asked(fd, id);
	if (code == 0 && slot->checkpoint_used_ns && uns_written_elsewhere(major(id->dev), minor(id->dev)))
		name = uns_fd_name(fd);
	pthread_mutex_lock(&fds->lock);
	if (code < 0) {
		count_open(fds, -1);
		if ((code == -EMFILE || code == -ENFILE) && fds->n_open)
			return 1;
		return uns_fail_copy(err, &why);
	}
	slot->is_open = true;
	slot->as_asked = as_asked;
	slot->no_pages = no_pages;
	slot->name = name;
	slot->fd = fd;
	slot->direct = direct;
	slot->nlink = nlink;
	slot->gone_ns = 0;
	slot->let_go = false;
	__atomic_store_n(&slot->asked_ns, 0, __ATOMIC_RELAXED);
	slot->ctime_ns = id->ctime_ns;
	return 0;
}

int uns_fds_pin(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file, struct uns_err *err)
{
	int code = 0;

	pthread_mutex_lock(&fds->lock);
	while (slot->is_opening)
		pthread_cond_wait(&fds->opened, &fds->lock);
	if (!slot->is_open) {
		slot->is_opening = true;
		do
			code = slot_open(fds, slot, file, code == 1, err);
		while (code == 1);
		slot->is_opening = false;
		pthread_cond_broadcast(&fds->opened);
	}
	if (code >= 0) {
		if (slot->is_idle)
			idle_remove(fds, slot);
		slot->n_pins++;
	}
	pthread_mutex_unlock(&fds->lock);
	return code;
}

void uns_fds_unpin(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;

	pthread_mutex_lock(&fds->lock);
	if (--slot->n_pins == 0) {
		idle_add(fds, slot, uns_now_ns());
		if (slot->checkpoint_used_ns)
			*slot->checkpoint_used_ns = slot->used_ns;
		if (slot->let_go || (slot->gone_ns && slot->used_ns - slot->gone_ns >= longest_idle_ns))
			fd = slot_release(fds, slot);
		else
			closer_wake(fds);
		pthread_cond_signal(&fds->room);
	}
	pthread_mutex_unlock(&fds->lock);
}

bool uns_fds_is_open(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	bool is_open;

	pthread_mutex_lock(&fds->lock);
	is_open = slot->is_open;
	pthread_mutex_unlock(&fds->lock);
	return is_open;
}

void uns_fds_let_go(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;

	pthread_mutex_lock(&fds->lock);
	slot->let_go = slot->is_open;
	if (slot->is_idle)
		fd = slot_release(fds, slot);
	pthread_mutex_unlock(&fds->lock);
}

void uns_fds_close(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;

	pthread_mutex_lock(&fds->lock);
	if (slot->is_open)
		fd = slot_release(fds, slot);
	pthread_mutex_unlock(&fds->lock);
}

/* A rename over the file or an unlink of one of its names changes ctime, not the bytes that an open
 * descriptor holds: ctime may be another with each name less, once. What it is then is remembered; a later
 * one with as many names is a write, even if mtime did not change. Lock held. */
static bool has_lost_a_name(struct uns_fd_slot *slot, const struct uns_identity *was, const struct uns_identity *now,
			    uint64_t nlink)
{
	if (now->dev != was->dev || now->ino != was->ino || now->size != was->size || now->mtime_ns != was->mtime_ns)
		return false;
	if (nlink < slot->nlink) {
		slot->nlink = nlink;
		slot->ctime_ns = now->ctime_ns;
	}
	return now->ctime_ns == slot->ctime_ns;
}

/* The kernel may know attributes for as long as a client of a network keeps them: asking the server for each read would
 * be more requests than the data. */
static bool is_to_ask(const struct uns_fd_slot *slot)
{
	const int64_t asked_ns = __atomic_load_n(&slot->asked_ns, __ATOMIC_RELAXED);

	return !asked_ns || uns_now_ns() - asked_ns >= longest_unasked_ns;
}

/* Readers that begin at once are many; one of them asks, the others wait for its answer. Returns whether the caller is
 * the one. */
static bool ask_begin(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	bool asks;

	if (!is_to_ask(slot))
		return false;
	pthread_mutex_lock(&fds->lock);
	while (slot->is_asking)
		pthread_cond_wait(&fds->answered, &fds->lock);
	asks = slot->is_asking = is_to_ask(slot);
	pthread_mutex_unlock(&fds->lock);
	return asks;
}

/* began_ns 0: there was no answer. */
static void ask_end(struct uns_fds *fds, struct uns_fd_slot *slot, int64_t began_ns)
{
	pthread_mutex_lock(&fds->lock);
	slot->is_asking = false;
	if (began_ns)
		__atomic_store_n(&slot->asked_ns, began_ns, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&fds->answered);
	pthread_mutex_unlock(&fds->lock);
}

int uns_fds_check(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file, struct uns_err *err)
{
	const bool asks = ask_begin(fds, slot);
	const int64_t began_ns = uns_now_ns();
	struct uns_identity now;
	uint64_t nlink;
	bool same;
	int code = uns_fd_identity(slot->fd, asks, &now, &nlink, err);

	if (asks) /* an answer is as old as the question */
		ask_end(fds, slot, code < 0 ? 0 : began_ns);
	if (code < 0)
		return code;
	if (uns_identity_equal(&now, &file->stat.id))
		return 0;
	pthread_mutex_lock(&fds->lock);
	same = has_lost_a_name(slot, &file->stat.id, &now, nlink);
	if (!slot->gone_ns && (!same || !nlink))
		slot->gone_ns = uns_now_ns();
	pthread_mutex_unlock(&fds->lock);
	return same ? 0 : fail_changed(file, &now, err);
}
