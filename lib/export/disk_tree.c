/* OUT.partial: directories, links and files without their bytes. */
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "export/exporting.h"
#include "out/disk.h"
#include "paths/files.h"

int export_path(const struct export *e, const char *path, char out[PATH_MAX], struct uns_err *err)
{
	if (snprintf(out, PATH_MAX, "%s/%s", e->target.partial, path) >= PATH_MAX)
		return uns_fail(err, -ENAMETOOLONG, "%s/%s: the path is too long", e->target.partial, path);
	return 0;
}

/* -- the directory itself -- */

/* Another process that exports to it holds the lock as long as it lives. */
static int partial_lock(const struct export *e, int *lock, struct uns_err *err)
{
	*lock = open(e->target.partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*lock < 0)
		return uns_fail_errno(e->target.partial, err);
	if (flock(*lock, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? uns_fail(err, -EBUSY, "%s: another export is writing to it", e->target.partial)
			       : uns_fail_errno(e->target.partial, err);
	return 0;
}

static int partial_begin(struct export *e, int *lock, bool *resumed, struct uns_err *err)
{
	*resumed = false;
	if (mkdir(e->target.partial, 0700) == 0)
		return partial_lock(e, lock, err);
	if (errno != EEXIST)
		return uns_fail_errno(e->target.partial, err);
	UNS_TRY(partial_lock(e, lock, err));
	if (!(e->flags & UNSHARD_EXPORT_RESUME))
		return uns_fail(err, -EEXIST,
				"%s was left by an export that did not end; resume that export "
				"(--resume), or remove the directory",
				e->target.partial);
	*resumed = true;
	return 0;
}

/* -- what an earlier export left -- */

static int not_ours(const char *path, struct uns_err *err)
{
	return uns_fail(err, -EEXIST,
			"%s does not belong to this export, so this export cannot be resumed; "
			"remove the directory that it is in",
			path);
}

/* 0 = the kernel does not report it (before Linux 5.8). */
static uint64_t mount_of(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID))
		return 0;
	return st.stx_mnt_id;
}

/* A file with another name, or on another mount, may be SOURCE's: an export makes neither. */
static bool is_of_others(const struct export *e, const FTSENT *f)
{
	return (f->fts_info == FTS_F && f->fts_statp->st_nlink > 1) ||
	       mount_of(f->fts_path) != mount_of(e->target.parent);
}

static int check_left(const struct export *e, const FTSENT *f, struct uns_err *err)
{
	static const unsigned short want[] = { [EXPORT_DIR] = FTS_D, [EXPORT_LINK] = FTS_SL, [EXPORT_FILE] = FTS_F };
	const char *path = f->fts_path + strlen(e->target.partial);
	uint32_t i;

	path += *path == '/';
	if (f->fts_info != FTS_DP && is_of_others(e, f))
		return not_ours(f->fts_path, err);
	if (!*path || f->fts_info == FTS_DP)
		return 0;
	if (f->fts_info == FTS_DNR || f->fts_info == FTS_ERR || f->fts_info == FTS_NS)
		return uns_fail(err, -f->fts_errno, "%s: %s", f->fts_path, strerror(f->fts_errno));
	i = uns_map_index(&e->by_path, path);
	if (i == UNS_MAP_NO_INDEX && strcmp(path, EXPORT_CHECKSUMS) == 0)
		return unlink(f->fts_path) < 0 ? uns_fail_errno(f->fts_path, err) : 0;
	if (i == UNS_MAP_NO_INDEX ||
	    (f->fts_info != want[e->entry[i].kind] && !(f->fts_info == FTS_SLNONE && e->entry[i].kind == EXPORT_LINK)))
		return not_ours(f->fts_path, err);
	return 0;
}

static int check_all_left(struct export *e, struct uns_err *err)
{
	char *const top[] = { e->target.partial, NULL };
	FTS *fts = fts_open(top, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *f;
	int code = fts ? 0 : uns_fail_errno(e->target.partial, err);

	while (code == 0 && (f = fts_read(fts)) != NULL)
		code = check_left(e, f, err);
	if (fts)
		fts_close(fts);
	return code;
}

/* -- entries -- */

static int make_link(const char *path, const char *target, struct uns_err *err)
{
	char there[PATH_MAX];
	ssize_t n;

	if (symlink(target, path) == 0)
		return 0;
	if (errno != EEXIST)
		return uns_fail_errno(path, err);
	n = readlink(path, there, sizeof(there));
	if (n < 0 || (size_t)n != strlen(target) || memcmp(there, target, (size_t)n) != 0)
		return not_ours(path, err);
	return 0;
}

struct sharing {
	int to;
	bool done;
};

static int blocks_share(void *ctx, int fd, struct uns_err *err)
{
	struct sharing *s = ctx;

	(void)err;
	s->done = uns_share_blocks(fd, s->to);
	return 0;
}

/* A file that is SOURCE's own takes no room if the file system can share blocks. */
static int try_to_share(struct export *e, struct export_entry *f, int fd, struct uns_err *err)
{
	struct sharing sharing = { .to = fd };
	struct unshard_error why = { 0 };
	struct uns_backing *backing;
	unshard_file *from;
	uint32_t source;
	int code = unshard_node_open(f->node, &e->caller.calls, &from, NULL, &why);

	if (code < 0)
		return export_fail(err, code, &why);
	if (file_is_source(from, &backing, &source))
		code = uns_backing_lend(backing, source, blocks_share, &sharing, err);
	unshard_file_close(from);
	f->shared = code == 0 && sharing.done;
	if (f->shared)
		e->made.shared_bytes += f->stat.size_bytes;
	return code;
}

/* *wanted: what it will take beyond what it has. */
static int make_file(struct export *e, struct export_entry *f, const char *path, uint64_t *wanted, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct stat st;

	UNS_TRY(uns_open_to_write(path, O_WRONLY | O_CREAT, 0600, &fd, err));
	if (fstat(fd, &st) < 0)
		return uns_fail_errno(path, err);
	f->was_there = st.st_size > 0;
	if (!f->was_there && f->stat.size_bytes)
		UNS_TRY(try_to_share(e, f, fd, err));
	if (!f->shared && (uint64_t)st.st_blocks * 512 < f->stat.size_bytes)
		*wanted += f->stat.size_bytes - (uint64_t)st.st_blocks * 512;
	return 0;
}

static int make_entries(struct export *e, uint64_t *wanted, struct uns_err *err)
{
	struct export_entry *x = e->entry, *end = x + e->n;
	char path[PATH_MAX];

	for (; x < end; x++) {
		UNS_TRY(export_path(e, x->path, path, err));
		if (x->kind == EXPORT_DIR && mkdir(path, x->stat.mode | S_IRWXU) < 0 && errno != EEXIST)
			return uns_fail_errno(path, err);
		if (x->kind == EXPORT_LINK)
			UNS_TRY(make_link(path, x->target, err));
		if (x->kind == EXPORT_FILE)
			UNS_TRY(make_file(e, x, path, wanted, err));
	}
	return 0;
}

/* -- room -- */

static int check_free(const struct export *e, uint64_t wanted, struct uns_err *err)
{
	struct statvfs fs;

	if (statvfs(e->target.partial, &fs) < 0 || !fs.f_blocks)
		return 0; /* the file system does not report it */
	if (fs.f_bavail < wanted / fs.f_frsize)
		return uns_fail(err, -ENOSPC, "%s: %llu bytes are to be written, and %llu are free there",
				e->target.parent, (unsigned long long)wanted,
				(unsigned long long)fs.f_bavail * fs.f_frsize);
	return 0;
}

/* What others write meanwhile cannot take the room away. A file system that cannot keep it is asked when
 * there is something to write. */
static int keep_room(const struct export *e, struct uns_err *err)
{
	const struct export_entry *x = e->entry, *end = x + e->n;
	char path[PATH_MAX];

	for (; x < end; x++) {
		UNS_CLEANUP(uns_close_p) int fd = -1;

		if (x->kind != EXPORT_FILE || x->shared || x->was_there || !x->stat.size_bytes)
			continue;
		UNS_TRY(export_path(e, x->path, path, err));
		UNS_TRY(uns_open_to_write(path, O_WRONLY, 0, &fd, err));
		if (fallocate(fd, 0, 0, (off_t)x->stat.size_bytes) < 0 && (errno == ENOSPC || errno == EDQUOT))
			return uns_fail_errno(path, err);
	}
	return 0;
}

int export_make_tree(struct export *e, int *lock, struct uns_err *err)
{
	uint64_t wanted = 0;
	bool resumed;
	int code;

	e->umask = uns_umask();
	UNS_TRY(partial_begin(e, lock, &resumed, err));
	if (resumed)
		UNS_TRY(check_all_left(e, err));
	code = caller_writes(&e->caller, e->target.partial, err);
	if (code == 0)
		code = make_entries(e, &wanted, err);
	if (code == 0)
		code = check_free(e, wanted, err);
	if (code == 0)
		code = keep_room(e, err);
	if (code < 0 && !resumed)
		uns_remove_tree(e->target.partial);
	return code;
}

int export_sync_tree(const struct export *e, struct uns_err *err)
{
	char path[PATH_MAX];
	size_t i;

	for (i = 0; i < e->n; i++) {
		if (e->entry[i].kind != EXPORT_DIR)
			continue;
		UNS_TRY(export_path(e, e->entry[i].path, path, err));
		UNS_TRY(uns_sync_dir(path, err));
	}
	return uns_sync_dir(e->target.partial, err);
}
