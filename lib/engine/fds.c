/* The descriptor table: one lock, an idle list in order of last use. Files are opened and closed with
 * the lock dropped. */
#include "engine/fds.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { RESERVED_FDS = 64, MOST_FDS = 1 << 16 };

/* Most of the limit: the program itself, FUSE and spill files need some. */
static size_t default_max_open(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return 256;
	if (lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur > MOST_FDS)
		return MOST_FDS - RESERVED_FDS;
	return lim.rlim_cur > 2 * RESERVED_FDS ? lim.rlim_cur - RESERVED_FDS :
						 lim.rlim_cur / 2 + 1;
}

void uns_fds_init(struct uns_fds *fds, unsigned max_open, struct uns_counters *count)
{
	size_t most = default_max_open();

	*fds = (struct uns_fds){ .count = count };
	fds->max_open = max_open && max_open < most ? max_open : most;
	pthread_mutex_init(&fds->lock, NULL);
	pthread_cond_init(&fds->room, NULL);
}

void uns_fds_fini(struct uns_fds *fds)
{
	pthread_cond_destroy(&fds->room);
	pthread_mutex_destroy(&fds->lock);
}

/* -- the idle list -- */

static void idle_remove(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	*(slot->newer ? &slot->newer->older : &fds->newest) = slot->older;
	*(slot->older ? &slot->older->newer : &fds->oldest) = slot->newer;
	slot->newer = slot->older = NULL;
	slot->is_idle = false;
}

static void idle_add(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	slot->older = fds->newest;
	*(slot->older ? &slot->older->newer : &fds->oldest) = slot;
	fds->newest = slot;
	slot->is_idle = true;
}

static void count_open(struct uns_fds *fds, int change)
{
	fds->n_open += (size_t)change;
	uns_count(&fds->count->open_files, (uint64_t)(int64_t)change);
	if (change < 0)
		pthread_cond_signal(&fds->room);
}

/* Give up an open idle slot; the descriptor is the caller's to close once the lock is dropped. */
static int slot_release(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	idle_remove(fds, slot);
	slot->is_open = false;
	count_open(fds, -1);
	return slot->fd;
}

/* -- opening -- */

static int fail_stale(const struct uns_file *file, struct uns_err *err, const char *how)
{
	return uns_fail(err, -ESTALE, "%s/%s: %s since the checkpoint was read; it is not served",
			uns_root_path(file->root), file->path, how);
}

static int fail_changed(const struct uns_file *file, const struct uns_identity *now,
			struct uns_err *err)
{
	const struct uns_identity *was = &file->stat.id;

	if (now->dev != was->dev || now->ino != was->ino)
		return fail_stale(file, err, "was replaced by another file");
	if (now->size != was->size)
		return uns_fail(err, -ESTALE,
				"%s/%s: had %llu bytes when the checkpoint was read, has %llu now; "
				"it is not served",
				uns_root_path(file->root), file->path, (unsigned long long)was->size,
				(unsigned long long)now->size);
	return fail_stale(file, err, "was written to");
}

static int fail_open(const struct uns_file *file, int code, const struct uns_err *why,
		     struct uns_err *err)
{
	if (code == -ENOENT)
		return fail_stale(file, err, "was removed");
	return uns_fail(err, code, "%s", why->text);
}

static int open_checked(const struct uns_file *file, int *out, uint64_t *nlink,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_err why = { 0 };
	struct uns_stat now;
	struct stat st;
	int code;

	if (file->missing)
		return uns_fail(err, -ENODATA, "%s/%s is missing", uns_root_path(file->root),
				file->path);
	code = uns_root_open_file(file->root, file->path, &fd, &now, &why);
	if (code < 0)
		return fail_open(file, code, &why, err);
	if (!uns_identity_equal(&now.id, &file->stat.id))
		return fail_changed(file, &now.id, err);
	if (fstat(fd, &st) < 0)
		return uns_fail(err, -EIO, "%s/%s: %m", uns_root_path(file->root), file->path);
	*nlink = st.st_nlink;
	*out = fd;
	fd = -1;
	return 0;
}

/* Take the right to open one more file; another one may have to be closed for it. Lock held; waits.
 * false when the slot was opened by someone else meanwhile. */
static bool reserve(struct uns_fds *fds, const struct uns_fd_slot *slot, int *victim)
{
	while (!slot->is_open && fds->n_open >= fds->max_open && !fds->oldest)
		pthread_cond_wait(&fds->room, &fds->lock);
	if (slot->is_open)
		return false;
	if (fds->n_open >= fds->max_open)
		*victim = slot_release(fds, fds->oldest);
	count_open(fds, 1);
	return true;
}

/* The process has fewer descriptors left than we thought: live with those we have. */
static bool retry_with_fewer(struct uns_fds *fds, int code)
{
	if ((code != -EMFILE && code != -ENFILE) || fds->n_open == 0)
		return false;
	if (fds->max_open > fds->n_open)
		fds->max_open = fds->n_open;
	return true;
}

/* Lock held on entry and return, dropped around the I/O. */
static int slot_open(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int victim = -1;
	struct uns_err why = { 0 };
	uint64_t nlink = 0;
	int fd = -1, code;

	if (!reserve(fds, slot, &victim))
		return 0;
	pthread_mutex_unlock(&fds->lock);
	uns_close_p(&victim);
	victim = -1;
	code = open_checked(file, &fd, &nlink, &why);
	pthread_mutex_lock(&fds->lock);
	if (code < 0) {
		count_open(fds, -1);
		return retry_with_fewer(fds, code) ? 0 : uns_fail(err, code, "%s", why.text);
	}
	if (slot->is_open) { /* another thread was faster */
		victim = fd;
		count_open(fds, -1);
		return 0;
	}
	slot->is_open = true;
	slot->fd = fd;
	slot->nlink = nlink;
	return 0;
}

int uns_fds_pin(struct uns_fds *fds, struct uns_fd_slot *slot, const struct uns_file *file,
		struct uns_err *err)
{
	int code = 0;

	pthread_mutex_lock(&fds->lock);
	while (!slot->is_open && code == 0)
		code = slot_open(fds, slot, file, err);
	if (code == 0) {
		if (slot->is_idle)
			idle_remove(fds, slot);
		slot->n_pins++;
	}
	pthread_mutex_unlock(&fds->lock);
	return code;
}

void uns_fds_unpin(struct uns_fds *fds, struct uns_fd_slot *slot)
{
	pthread_mutex_lock(&fds->lock);
	if (--slot->n_pins == 0) {
		idle_add(fds, slot);
		pthread_cond_signal(&fds->room);
	}
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
 * descriptor holds. */
static bool only_lost_a_name(const struct uns_fd_slot *slot, const struct uns_identity *was,
			     const struct uns_identity *now)
{
	struct stat st;

	return now->dev == was->dev && now->ino == was->ino && now->size == was->size &&
	       now->mtime_ns == was->mtime_ns && fstat(slot->fd, &st) == 0 &&
	       st.st_nlink < slot->nlink;
}

int uns_fds_check(const struct uns_fd_slot *slot, const struct uns_file *file, struct uns_err *err)
{
	struct uns_identity now;

	UNS_TRY(uns_fd_identity(slot->fd, &now, err));
	if (uns_identity_equal(&now, &file->stat.id) ||
	    only_lost_a_name(slot, &file->stat.id, &now))
		return 0;
	return fail_changed(file, &now, err);
}
