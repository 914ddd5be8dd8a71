/* Roots and the files below them. The kernel resolves paths (openat2). Where a link leaves the root,
 * or the kernel has no openat2, io/follow.c does. What is below a prefix of a bucket, io/objects.c has. */
#include "io/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"
#include "io/access.h"
#include "io/follow.h"
#include "io/numbers.h"
#include "io/objects.h"
#include "io/other_url.h"
#include "io/pages.h"

enum {
	FILE_FLAGS = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY,
	DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC,
	RACE_RETRIES = 16,
	DENTS_BYTES = 32 << 10,
};

struct uns_root {
	struct uns_base *base; /* [0] the root itself, then the follow directories */
	size_t n_bases;
	struct uns_objects *objects; /* NULL = it is a directory; else base has the URL alone */
	struct uns_root *above; /* NULL = none, or not to be looked into */
	bool trusted;
	bool has_openat2; /* older kernels and some sandboxes do not */
	uint64_t *looks;  /* atomic */
	unsigned more_refs; /* atomic: than one */
};

static void count_look(const struct uns_root *root)
{
	__atomic_add_fetch(root->looks, 1, __ATOMIC_RELAXED);
}

uint64_t uns_root_looks(const struct uns_root *root)
{
	return __atomic_load_n(root->looks, __ATOMIC_RELAXED);
}

/* -- roots -- */

static int sys_openat2(int dir, const char *rel, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)flags, .resolve = resolve };

	return (int)syscall(__NR_openat2, dir, rel, &how, sizeof(how));
}

static void trim_slashes(char *path)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		path[--n] = '\0';
}

/* No "." and, above all, no ".." among the components. */
static bool is_plain_path(const char *path)
{
	const char *p;
	size_t n;

	for (p = path; *p; p += n, p += strspn(p, "/")) {
		n = strcspn(p, "/");
		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
	}
	return true;
}

static int base_open(const char *path, struct uns_base *base, struct uns_err *err)
{
	base->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base->fd < 0)
		return uns_fail(err, -errno, "%s: %m", path);
	base->real = realpath(path, NULL);
	if (base->real) /* links are spelled "/a/b", not "b", "./b" or "/a/../a/b" */
		base->given = strdup(path[0] == '/' && is_plain_path(path) ? path : base->real);
	if (!base->real || !base->given)
		return uns_fail(err, -errno, "%s: %m", path);
	trim_slashes(base->real);
	trim_slashes(base->given);
	return 0;
}

struct uns_root *uns_root_ref(struct uns_root *root)
{
	__atomic_add_fetch(&root->more_refs, 1, __ATOMIC_RELAXED);
	return root;
}

void uns_root_close(struct uns_root *root)
{
	size_t i;

	if (root && __atomic_fetch_sub(&root->more_refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; root && i < root->n_bases; i++) {
		uns_close_p(&root->base[i].fd);
		free(root->base[i].given);
		free(root->base[i].real);
	}
	if (root) {
		uns_root_close(root->above);
		uns_objects_close(root->objects);
		free(root->base);
		free(root->looks);
	}
	free(root);
}

static void root_close_p(struct uns_root **root)
{
	uns_root_close(*root);
}

static bool kernel_has_openat2(int dir)
{
	int fd = sys_openat2(dir, ".", O_PATH | O_CLOEXEC, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* By its descriptor, so that what is mounted over it later is not seen. One that may not be gone through is none. */
static int open_above(struct uns_root *root, unsigned levels, struct uns_err *err)
{
	UNS_CLEANUP(root_close_p) struct uns_root *above = NULL;
	const struct uns_base *from = &root->base[0];
	struct uns_base *to;
	int fd = -1;

	if (levels && *from->real)
		fd = openat(from->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	above = calloc(1, sizeof(*above));
	if (above)
		above->base = to = calloc(1, sizeof(*to));
	if (!above || !above->base) {
		close(fd);
		return uns_oom(err);
	}
	above->n_bases = 1;
	to->fd = fd;
	to->real = strndup(from->real, (size_t)(strrchr(from->real, '/') - from->real));
	to->given = to->real ? strdup(to->real) : NULL;
	above->looks = calloc(1, sizeof(*above->looks));
	above->has_openat2 = root->has_openat2;
	UNS_TRY_ALLOC(to->given && above->looks, err);
	UNS_TRY(open_above(above, levels - 1, err));
	root->above = UNS_TAKE(above);
	return 0;
}

static int root_of_directory(const char *path, const struct uns_root_options *options, struct uns_root **out,
			     struct uns_err *err)
{
	UNS_CLEANUP(root_close_p) struct uns_root *root = calloc(1, sizeof(*root));
	size_t n_follow = options ? options->n_follow : 0, i;

	UNS_TRY_ALLOC(root, err);
	root->base = calloc(n_follow + 1, sizeof(*root->base));
	root->looks = calloc(1, sizeof(*root->looks));
	UNS_TRY_ALLOC(root->base && root->looks, err);
	root->trusted = options && options->trusted;
	for (i = 0; i <= n_follow; i++) {
		root->base[i].fd = -1;
		root->n_bases = i + 1;
		UNS_TRY(base_open(i ? options->follow[i - 1] : path, &root->base[i], err));
	}
	root->has_openat2 = kernel_has_openat2(root->base[0].fd);
	UNS_TRY(open_above(root, options ? options->above : 0, err));
	*out = UNS_TAKE(root);
	return 0;
}

/* Takes the objects. */
static int root_of_objects(struct uns_objects *objects, unsigned above, struct uns_root **out, struct uns_err *err)
{
	UNS_CLEANUP(root_close_p) struct uns_root *root = calloc(1, sizeof(*root));
	struct uns_objects *next = NULL;

	if (!root) {
		uns_objects_close(objects);
		return uns_oom(err);
	}
	root->objects = objects;
	root->looks = calloc(1, sizeof(*root->looks));
	root->base = calloc(1, sizeof(*root->base));
	UNS_TRY_ALLOC(root->looks && root->base, err);
	root->n_bases = 1;
	root->base[0] = (struct uns_base){ -1, strdup(uns_objects_url(objects)), strdup(uns_objects_url(objects)) };
	UNS_TRY_ALLOC(root->base[0].given && root->base[0].real, err);
	if (above)
		UNS_TRY(uns_objects_above(objects, &next, err));
	if (next)
		UNS_TRY(root_of_objects(next, above - 1, &root->above, err));
	*out = UNS_TAKE(root);
	return 0;
}

int uns_root_open(const char *path, const struct uns_root_options *options, struct uns_root **out, struct uns_err *err)
{
	struct uns_objects *objects;

	UNS_TRY(uns_objects_is_url(path) ? 0 : uns_other_url_refuse(path, err));
	if (!uns_objects_is_url(path))
		return root_of_directory(path, options, out, err);
	UNS_TRY(uns_objects_open(path, &objects, err));
	return root_of_objects(objects, options ? options->above : 0, out, err);
}

int uns_root_up(const struct uns_root *root, const char *rel, struct uns_arena *arena, const struct uns_root **root_up,
		const char **rel_up, struct uns_err *err)
{
	*root_up = *rel ? root : root->above;
	*rel_up = *rel ? uns_path_parent(arena, rel) : root->above ? "" : NULL;
	return *rel && !*rel_up ? uns_oom(err) : 0;
}

const char *uns_root_name(const struct uns_root *root, const char *rel)
{
	return uns_path_name(*rel ? rel : root->base[0].real);
}

const char *uns_root_path(const struct uns_root *root)
{
	return root->base[0].given[0] ? root->base[0].given : "/";
}

bool uns_root_is_remote(const struct uns_root *root)
{
	return root->objects;
}

void uns_root_rest(const struct uns_root *root)
{
	for (; root; root = root->above)
		if (root->objects)
			uns_objects_rest(root->objects);
}

/* -- opening below a root -- */

static int open_by_kernel(const struct uns_root *root, const char *rel, int flags)
{
	uint64_t resolve = RESOLVE_NO_MAGICLINKS | (root->trusted ? 0 : RESOLVE_BENEATH);
	int fd = -1, tries;

	if (root->trusted && !root->has_openat2) {
		fd = openat(root->base[0].fd, rel, flags);
		return fd < 0 ? -errno : fd;
	}
	/* EAGAIN: something was renamed while the kernel checked that ".." stays below. */
	for (tries = 0; fd < 0 && tries < RACE_RETRIES; tries++) {
		fd = sys_openat2(root->base[0].fd, rel, flags, resolve);
		if (fd < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return fd < 0 ? -EAGAIN : fd;
}

int uns_root_fail(const struct uns_root *root, const char *rel, int code, struct uns_err *err)
{
	if (code == -ENOTDIR)
		code = -ENOENT; /* a path below a file does not exist, like any other */
	uns_fail(err, code, "%s%s%s: %s", uns_root_path(root), *rel ? "/" : "", rel, strerror(-code));
	uns_fail_about(err, rel);
	return code;
}

static int open_below(const struct uns_root *root, const char *rel, int flags, struct uns_err *err)
{
	int fd = -EXDEV;

	count_look(root);
	if (*rel == '/' || !is_plain_path(rel))
		return uns_fail(err, -EXDEV, "%s: \"%s\" is not a path below it", uns_root_path(root), rel);
	if (root->trusted || root->has_openat2)
		fd = open_by_kernel(root, *rel ? rel : ".", flags);
	if (fd == -EXDEV)
		fd = uns_follow_open(root->base, root->n_bases, rel, flags, err);
	return fd < 0 ? uns_root_fail(root, rel, fd, err) : fd;
}

/* -- stat, readlink, list -- */

static enum uns_kind kind_of_mode(mode_t mode)
{
	if (S_ISREG(mode))
		return UNS_KIND_FILE;
	if (S_ISDIR(mode))
		return UNS_KIND_DIR;
	return S_ISLNK(mode) ? UNS_KIND_LINK : UNS_KIND_OTHER;
}

static int64_t ns_of(struct statx_timestamp t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Since Linux 6.8 a number that no later mount gets again; before, the number is free again after an unmount. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

/* Neither the time of the last read nor the number of blocks: FUSE and NFS forget the first with each read, and would
 * ask the server for it before and after each of ours. */
enum {
	STAT_FIELDS = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_MTIME | STATX_CTIME |
		      STATX_INO | STATX_SIZE | STATX_BTIME | STATX_MNT_ID | STATX_MNT_ID_UNIQUE
};

static int stat_at(int dir, const char *name, int flags, struct uns_stat *out)
{
	struct statx st;

	if (statx(dir, name, flags, STAT_FIELDS, &st) < 0)
		return -errno;
	*out = (struct uns_stat){
		.kind = kind_of_mode(st.stx_mode),
		.mode = st.stx_mode & 07777,
		.uid = st.stx_uid,
		.gid = st.stx_gid,
		.id = { .dev = makedev(st.stx_dev_major, st.stx_dev_minor),
			.ino = uns_inodes_last(st.stx_dev_major, st.stx_dev_minor) ? st.stx_ino : 0,
			.size = st.stx_size,
			.mtime_ns = ns_of(st.stx_mtime),
			.ctime_ns = ns_of(st.stx_ctime),
			.mount = st.stx_ctime.tv_nsec || !st.stx_dev_major ? 0 : st.stx_mnt_id },
		.nlink = st.stx_nlink,
		.born_ns = st.stx_mask & STATX_BTIME ? ns_of(st.stx_btime) : 0,
	};
	return 0;
}

int uns_path_stat(const char *path, struct uns_stat *out, struct uns_err *err)
{
	int code = stat_at(AT_FDCWD, path, 0, out);

	return code < 0 ? uns_fail(err, code, "%s: %s", path, strerror(-code)) : 0;
}

static int stat_fd(const struct uns_root *root, const char *rel, int fd, struct uns_stat *out, struct uns_err *err)
{
	int code = stat_at(fd, "", AT_EMPTY_PATH, out);

	return code < 0 ? uns_root_fail(root, rel, code, err) : 0;
}

static int stat_object(const struct uns_root *root, const char *rel, struct uns_stat *out, struct uns_err *err)
{
	int code;

	count_look(root);
	code = uns_objects_stat(root->objects, rel, out, err);
	return code < 0 ? uns_root_fail(root, rel, code, err) : 0;
}

int uns_root_self(const struct uns_root *root, struct uns_stat *out, struct uns_err *err)
{
	if (root->objects)
		return stat_object(root, "", out, err);
	return stat_fd(root, "", root->base[0].fd, out, err);
}

int uns_dir_stat(const struct uns_root *root, int dir, const char *name, struct uns_stat *out)
{
	count_look(root);
	if (uns_is_handle(dir))
		return uns_objects_stat_in(dir, name, out);
	return stat_at(dir, name, AT_SYMLINK_NOFOLLOW, out);
}

/* `path` below `dir`; NULL when it is not. */
static const char *path_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* Every directory of `path`, below the base, that leads to its last name. */
static int go_through(const struct uns_base *base, const char *path, struct uns_stat *out)
{
	const char *slash = path;
	char dir[PATH_MAX];
	struct uns_stat st;
	int code;

	while ((slash = strchr(slash, '/'))) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
		code = stat_at(base->fd, dir, AT_SYMLINK_NOFOLLOW, &st);
		if (code < 0)
			return code;
		uns_access_through(out, &st);
		slash++;
	}
	return 0;
}

/* The path at which the kernel has the open file, without a NUL; -1 with errno. */
static ssize_t path_of_fd(int fd, char *path, size_t size)
{
	char link[40];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, size);
}

/* Links are followed with the rights of this process. A user of one must be allowed to go through the
 * directories that it leads through, too. If these are not known, only the link's owner is. */
static int add_links_way(const struct uns_root *root, const char *rel, int fd, struct uns_stat *out)
{
	char real[PATH_MAX];
	const char *below;
	ssize_t n;
	size_t i;

	if (root->trusted)
		return 0;
	n = path_of_fd(fd, real, sizeof(real) - 1);
	if (n < 0 && errno != ENOENT) /* that is without /proc */
		return -errno;
	real[n < 0 ? 0 : n] = '\0';
	below = path_below(real, root->base[0].real);
	if (!*rel || (below && strcmp(below, rel) == 0))
		return 0;
	for (i = 0; i < root->n_bases; i++) {
		below = path_below(real, root->base[i].real);
		if (below)
			return go_through(&root->base[i], below, out);
		if (strcmp(real, root->base[i].real) == 0)
			return 0;
	}
	out->mode &= ~(uint32_t)0077;
	return 0;
}

int uns_root_stat(const struct uns_root *root, const char *rel, bool follow, struct uns_stat *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -EXDEV;
	struct uns_err unused = { 0 };
	int code;

	if (root->objects)
		return stat_object(root, rel, out, err);
	if (follow)
		fd = open_below(root, rel, O_PATH | O_CLOEXEC, &unused);
	if (!follow || fd == -EXDEV)
		fd = open_below(root, rel, O_PATH | O_CLOEXEC | O_NOFOLLOW, err);
	else if (fd < 0)
		uns_fail_as(err, &unused);
	if (fd < 0)
		return fd;
	UNS_TRY(stat_fd(root, rel, fd, out, err));
	code = follow && out->kind != UNS_KIND_LINK ? add_links_way(root, rel, fd, out) : 0;
	return code < 0 ? uns_root_fail(root, rel, code, err) : 0;
}

int uns_root_readlink(const struct uns_root *root, const char *rel, struct uns_arena *arena, const char **out,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	char target[PATH_MAX];
	ssize_t len;

	if (root->objects) /* none is a link */
		return uns_root_fail(root, rel, -EINVAL, err);
	fd = open_below(root, rel, O_PATH | O_CLOEXEC | O_NOFOLLOW, err);
	if (fd < 0)
		return fd;
	len = readlinkat(fd, "", target, sizeof(target));
	if (len < 0) /* the kernel answers ENOENT for a descriptor that is no link */
		return uns_root_fail(root, rel, errno == ENOENT ? -EINVAL : -errno, err);
	*out = uns_arena_strn(arena, target, (size_t)len);
	return *out ? 0 : uns_oom(err);
}

static enum uns_kind kind_of_entry(const struct uns_root *root, int dir, const struct dirent64 *d)
{
	struct uns_stat st;

	if (d->d_type != DT_UNKNOWN)
		return kind_of_mode(DTTOIF(d->d_type));
	return uns_dir_stat(root, dir, d->d_name, &st) < 0 ? UNS_KIND_OTHER : st.kind; /* gone again */
}

static bool listing_add(struct uns_listing *list, size_t *cap, struct uns_arena *arena, const char *name,
			enum uns_kind kind)
{
	if (!UNS_ARENA_ROOM(arena, list->v, list->n, *cap))
		return false;
	name = uns_arena_str(arena, name);
	if (!name)
		return false;
	list->v[list->n++] = (struct uns_entry){ name, kind };
	return true;
}

static int by_name(const void *a, const void *b)
{
	const struct uns_entry *x = a, *y = b;

	return uns_str_natural(x->name, y->name);
}

static int read_entries(const struct uns_root *root, int dir, struct uns_arena *arena, struct uns_listing *out)
{
	UNS_CLEANUP(uns_free_p) char *buf = malloc(DENTS_BYTES);
	const struct dirent64 *d;
	size_t cap = 0;
	ssize_t n, at;

	if (!buf)
		return -ENOMEM;
	while ((n = getdents64(dir, buf, DENTS_BYTES)) > 0) {
		for (at = 0; at < n; at += d->d_reclen) {
			d = (const void *)(buf + at);
			if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 &&
			    !listing_add(out, &cap, arena, d->d_name, kind_of_entry(root, dir, d)))
				return -ENOMEM;
		}
	}
	return n < 0 ? -errno : 0;
}

int uns_dir_list(const struct uns_root *root, const char *rel, int fd, struct uns_arena *arena, struct uns_listing *out,
		 struct uns_err *err)
{
	int code;

	*out = (struct uns_listing){ 0 };
	count_look(root);
	if (root->objects)
		code = uns_objects_list(root->objects, rel, arena, out, err);
	else
		code = read_entries(root, fd, arena, out);
	if (code < 0)
		return uns_root_fail(root, rel, code, err);
	if (out->n)
		qsort(out->v, out->n, sizeof(*out->v), by_name);
	return 0;
}

int uns_root_list(const struct uns_root *root, const char *rel, struct uns_arena *arena, struct uns_listing *out,
		  struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;

	if (root->objects)
		return uns_dir_list(root, rel, -1, arena, out, err);
	fd = open_below(root, rel, DIR_FLAGS, err);
	return fd < 0 ? fd : uns_dir_list(root, rel, fd, arena, out, err);
}

static int open_directory(const struct uns_root *root, const char *rel, int flags, int *fd, struct uns_stat *out,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int dir = -1;
	int code;

	if (root->objects) {
		count_look(root);
		code = uns_objects_open_dir(root->objects, rel, fd, out, err);
		return code < 0 ? uns_root_fail(root, rel, code, err) : 0;
	}
	dir = open_below(root, rel, flags, err);
	if (dir < 0)
		return dir;
	UNS_TRY(stat_fd(root, rel, dir, out, err));
	code = add_links_way(root, rel, dir, out);
	if (code < 0)
		return uns_root_fail(root, rel, code, err);
	*fd = dir;
	dir = -1;
	return 0;
}

int uns_root_open_dir(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err)
{
	return open_directory(root, rel, DIR_FLAGS, fd, out, err);
}

int uns_root_open_dir_path(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out,
			   struct uns_err *err)
{
	return open_directory(root, rel, O_PATH | O_DIRECTORY | O_CLOEXEC, fd, out, err);
}

int uns_dir_open(const struct uns_root *root, const char *rel, int path, int *fd, struct uns_err *err)
{
	struct uns_stat unused;

	if (root->objects)
		return uns_root_open_dir(root, rel, fd, &unused, err);
	count_look(root);
	*fd = openat(path, ".", DIR_FLAGS);
	return *fd < 0 ? uns_root_fail(root, rel, -errno, err) : 0;
}

int uns_root_open_path(const struct uns_root *root, const char *rel)
{
	struct uns_stat unused;
	int fd;

	if (root->objects)
		return open_directory(root, rel, 0, &fd, &unused, NULL) < 0 ? -ENOENT : fd;
	return open_below(root, rel, O_PATH | O_DIRECTORY | O_CLOEXEC, NULL);
}

const struct uns_entry *uns_listing_find(const struct uns_listing *list, const char *name)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (strcmp(list->v[i].name, name) == 0)
			return &list->v[i];
	return NULL;
}

bool uns_listing_has_file(const struct uns_listing *list, const char *name)
{
	const struct uns_entry *e = uns_listing_find(list, name);

	return e && e->kind != UNS_KIND_DIR;
}

bool uns_listing_has_glob(const struct uns_listing *list, const char *glob)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (list->v[i].kind != UNS_KIND_DIR && uns_str_glob(glob, list->v[i].name))
			return true;
	return false;
}

/* -- files -- */

static int fail_not_regular(const struct uns_root *root, const char *rel, struct uns_err *err)
{
	uns_fail(err, -ENOTSUP, "%s/%s: not a regular file", uns_root_path(root), rel);
	uns_fail_about(err, rel);
	return -ENOTSUP;
}

static int open_object(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err)
{
	int code;

	count_look(root);
	code = uns_objects_open_file(root->objects, rel, fd, out, err);
	if (code == -EISDIR)
		return fail_not_regular(root, rel, err);
	return code < 0 ? uns_root_fail(root, rel, code, err) : 0;
}

int uns_root_open_file(const struct uns_root *root, const char *rel, int *fd, struct uns_stat *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int file = -1;
	struct uns_err why = { 0 };
	struct uns_stat st;

	if (root->objects)
		return open_object(root, rel, fd, out ? out : &st, err);
	file = open_below(root, rel, FILE_FLAGS, &why);
	if (file == -ENXIO || file == -ENODEV) /* a socket, a device without driver */
		return fail_not_regular(root, rel, err);
	if (file < 0) {
		uns_fail_as(err, &why);
		uns_fail_about(err, rel);
		return file;
	}
	UNS_TRY(stat_fd(root, rel, file, &st, err));
	if (st.kind != UNS_KIND_FILE)
		return fail_not_regular(root, rel, err);
	if (out)
		*out = st;
	*fd = file;
	file = -1;
	return 0;
}

int uns_root_read_file(const struct uns_root *root, const char *rel, uint64_t max_bytes, struct uns_arena *arena,
		       struct uns_span *out, struct uns_stat *out_stat, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_stat st;
	uint8_t *bytes;
	int rc;

	UNS_TRY(uns_root_open_file(root, rel, &fd, &st, err));
	if (st.id.size > max_bytes) {
		uns_fail(err, -ENOTSUP, "%s/%s: %llu bytes; expected at most %llu", uns_root_path(root), rel,
			 (unsigned long long)st.id.size, (unsigned long long)max_bytes);
		uns_fail_about(err, rel);
		return -ENOTSUP;
	}
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, (size_t)st.id.size + 1, 1), err);
	rc = uns_fd_pread(fd, bytes, (size_t)st.id.size, 0, rel, err);
	if (rc < 0) {
		uns_fail_in(err, "%s", uns_root_path(root));
		return rc;
	}
	*out = uns_span_of(bytes, (size_t)st.id.size);
	if (out_stat)
		*out_stat = st;
	return 0;
}

int uns_fd_identity(int fd, bool fresh, struct uns_identity *out, uint64_t *nlink, struct uns_err *err)
{
	struct uns_stat st;
	int code;

	if (uns_is_handle(fd)) { /* what is read is of that one, or fails */
		*out = *uns_object_identity(fd);
		if (nlink)
			*nlink = 1;
		return 0;
	}
	code = stat_at(fd, "", AT_EMPTY_PATH | (fresh ? AT_STATX_FORCE_SYNC : 0), &st);

	if (code < 0)
		return uns_fail(err, code == -ESTALE ? code : -EIO,
				"its size and times cannot be "
				"read: %s",
				strerror(-code));
	*out = st.id;
	if (nlink)
		*nlink = st.nlink;
	return 0;
}

uint64_t uns_fd_name(int fd)
{
	char path[PATH_MAX];
	ssize_t n;

	if (uns_is_handle(fd))
		return uns_object_identity(fd)->ino;
	n = path_of_fd(fd, path, sizeof(path));
	return n < 0 ? 0 : uns_hash_end(uns_hash_bytes(UNS_HASH_INIT, path, (size_t)n)) | 1;
}

void uns_fd_forget_pages(int fd, const struct uns_identity *id)
{
	if (!uns_is_handle(fd) && uns_written_elsewhere(major(id->dev), minor(id->dev)))
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* The second advice leaves the first one's longer calls as they are. */
bool uns_fd_read_as_asked(int fd, const struct uns_identity *id)
{
	return !uns_is_handle(fd) && uns_written_elsewhere(major(id->dev), minor(id->dev)) &&
	       posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0;
}

/* Of such a file the kernel maps no pages that others would share. */
bool uns_fd_reads_pages(int fd, const struct uns_identity *id)
{
	void *at;

	if (uns_is_handle(fd))
		return false;
	if (!uns_written_elsewhere(major(id->dev), minor(id->dev)))
		return true;
	at = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		munmap(at, 1);
	return at != MAP_FAILED || errno != ENODEV;
}

bool uns_fd_will_read(int fd, uint64_t at, uint64_t end)
{
	if (!uns_is_handle(fd))
		return false;
	uns_object_will_read(fd, at, end);
	return true;
}

int uns_fd_pread_fail(ssize_t got, size_t len, uint64_t off, const char *name, struct uns_err *err)
{
	if (got < 0)
		return uns_fail(err, errno == ESTALE ? -ESTALE : -EIO, "%s: reading %zu bytes at %llu: %m", name, len,
				(unsigned long long)off);
	return uns_fail(err, -ESTALE, "%s: the file ends at byte %llu: it became shorter while it was read", name,
			(unsigned long long)off);
}

int uns_fd_pread(int fd, void *buf, size_t len, uint64_t off, const char *name, struct uns_err *err)
{
	uint8_t *p = buf;
	ssize_t n;

	if (off > INT64_MAX - len)
		return uns_fail(err, -EBADMSG, "%s: offset %llu is larger than any file", name,
				(unsigned long long)off);
	if (uns_is_handle(fd))
		return uns_object_pread(fd, buf, len, off, err);
	while (len) {
		n = pread(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return uns_fd_pread_fail(n, len, off, name, err);
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* All of them are, or will be without another word to storage. */
static bool are_cached(int fd, uint64_t off, size_t len)
{
	uint64_t cached;

	return len && uns_pages_cached(fd, off, len, &cached) && cached == uns_pages_of(off, len);
}

static ssize_t pread_nowait(int fd, void *buf, size_t len, uint64_t off)
{
	struct iovec to = { buf, len };

	return preadv2(fd, &to, 1, (off_t)off, RWF_NOWAIT);
}

int uns_fd_pread_now(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = -1;

	if (off <= INT64_MAX - len) {
		n = pread_nowait(fd, buf, len, off);
		if (n < 0 && errno == EOPNOTSUPP && are_cached(fd, off, len))
			n = pread(fd, buf, len, (off_t)off);
	}
	return n >= 0 && (size_t)n == len ? 0 : -EAGAIN; /* an error is for the read that waits to report */
}

/* Bytes come into memory in order: where the last is, the others are. cachestat counts them all, and so it need not be
 * a neighbour's page. */
bool uns_fd_has(int fd, size_t len, uint64_t off)
{
	uint8_t byte;
	ssize_t n = pread_nowait(fd, &byte, 1, off + len - 1);

	return n == 1 || (n < 0 && errno == EOPNOTSUPP && are_cached(fd, off, len));
}

static int file_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_open_file *file = self;

	return uns_fd_pread(file->fd, buf, len, off, file->name, err);
}

struct uns_reader uns_reader_of_file(struct uns_open_file *file, uint64_t size)
{
	return (struct uns_reader){ file_pread, file, size };
}
