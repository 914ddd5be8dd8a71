/* A directory, passed through as network file systems show one: every second each file has another inode number,
 * as below mountpoint-s3 and newer rclone.
 *
 *     renumber_fs SOURCE MOUNTPOINT [fine] [coarse] [kept=SECONDS] [counts=FILE] [opened=FILE] [touched] [pages]
 * [torn] [direct] [delay=US] [every=US] [type=NAME]
 *
 * coarse: times are whole seconds. kept: inode numbers stay, and the kernel keeps names and attributes for so long, but
 * not that a name is absent, as clients of networks have it. counts: FILE holds how many requests there were of each
 * kind (enum request). opened: FILE gets a line with the path of each file that is opened. touched: a directory's time
 * is that of the mount, as rclone has it. pages: the kernel keeps a file's bytes until its size or its mtime is
 * another, and there is no other time, as below sshfs. torn: it keeps them also then, until it is told to drop them, as
 * below CephFS those that were read during a write. direct: the kernel keeps no bytes, each read is asked for
 * (direct_io). delay: a read takes so many microseconds more. every: so does each request, and up to 64 of them wait at
 * once. type: it is called fuse.NAME.
 *
 * Read-only, in the foreground, until it is unmounted or gets a signal. */
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int source = -1;
static bool coarse, pages, torn, direct;
static useconds_t delay_us; /* of a read */
static useconds_t every_us; /* of each request */
static double kept_s = -1; /* below 0: nothing is kept */
static time_t touched_s;   /* 0 = directories have their own times */

#define AT_ONCE 64 /* requests, where each of them takes time */

/* GETATTR: LOOKUP as well, which asks for the same. Behind the requests: bytes that were read; at most so many reads
 * and opens were answered at once, and so many files open. */
enum request {
	GETATTR,
	READLINK,
	OPENDIR,
	READDIR,
	OPEN,
	READ,
	REQUESTS,
	READ_BYTES = REQUESTS,
	READS_AT_ONCE,
	OPENS_AT_ONCE,
	FILES_OPEN,
	COUNTS
};

static _Atomic uint64_t uncounted[COUNTS], *counts = uncounted, reads_now, opens_now, open_now;
static int opened = -1;

static void count(enum request kind)
{
	atomic_fetch_add(&counts[kind], 1);
	if (every_us)
		usleep(every_us);
}

/* Below SOURCE: "/a/b" -> "a/b". */
static const char *below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static void disguise(struct stat *st)
{
	if (kept_s < 0)
		st->st_ino += (ino_t)time(NULL) << 32;
	if (touched_s && S_ISDIR(st->st_mode)) {
		st->st_mtim = (struct timespec){ .tv_sec = touched_s };
		st->st_ctim = st->st_mtim;
	}
	if (pages)
		st->st_ctim = st->st_mtim;
	if (coarse)
		st->st_atim.tv_nsec = st->st_mtim.tv_nsec = st->st_ctim.tv_nsec = 0;
}

static int op_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	count(GETATTR);
	if (fstatat(source, below(path), st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	disguise(st);
	return 0;
}

static int op_readlink(const char *path, char *target, size_t size)
{
	ssize_t n = readlinkat(source, below(path), target, size - 1);

	count(READLINK);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return 0;
}

static int op_opendir(const char *path, struct fuse_file_info *fi)
{
	int fd = openat(source, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	count(OPENDIR);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int op_releasedir(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return close((int)fi->fh) < 0 ? -errno : 0;
}

static int op_readdir(const char *path, void *to, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	int fd = openat((int)fi->fh, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;
	bool plus = flags & FUSE_READDIR_PLUS, has;

	(void)path;
	count(READDIR);
	if (!dir)
		return -errno;
	seekdir(dir, off);
	while ((e = readdir(dir))) {
		has = plus && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
		if (has)
			disguise(&st);
		if (fill(to, e->d_name, has ? &st : NULL, telldir(dir), has ? FUSE_FILL_DIR_PLUS : 0))
			break;
	}
	closedir(dir);
	return 0;
}

/* One more of them; the most there ever were. */
static void one_more(_Atomic uint64_t *of, enum request most_of)
{
	uint64_t now = atomic_fetch_add(of, 1) + 1, most = atomic_load(&counts[most_of]);

	while (now > most && !atomic_compare_exchange_weak(&counts[most_of], &most, now))
		;
}

static int op_open(const char *path, struct fuse_file_info *fi)
{
	int fd = openat(source, below(path), O_RDONLY | O_CLOEXEC);

	if (opened >= 0)
		dprintf(opened, "%s\n", below(path));
	one_more(&opens_now, OPENS_AT_ONCE);
	count(OPEN);
	atomic_fetch_sub(&opens_now, 1);
	if (fd < 0)
		return -errno;
	one_more(&open_now, FILES_OPEN);
	fi->fh = (uint64_t)fd;
	fi->direct_io = direct;
	return 0;
}

static int op_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	ssize_t n;

	(void)path;
	one_more(&reads_now, READS_AT_ONCE);
	count(READ);
	n = pread((int)fi->fh, buf, size, off);
	if (delay_us)
		usleep(delay_us);
	atomic_fetch_sub(&reads_now, 1);
	if (n < 0)
		return -errno;
	atomic_fetch_add(&counts[READ_BYTES], (uint64_t)n);
	return (int)n;
}

static int op_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	atomic_fetch_sub(&open_now, 1);
	return close((int)fi->fh) < 0 ? -errno : 0;
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	if (every_us)
		conn->max_background = AT_ONCE; /* of reads ahead; libfuse has a thread for each by -o max_threads */
	config->use_ino = 1;
	config->kernel_cache = pages || torn;
	if (torn)
		conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
	config->attr_timeout = config->entry_timeout = kept_s > 0 ? kept_s : 0;
	config->negative_timeout = 0;
	return NULL;
}

static bool count_into(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(uncounted)) == 0)
		at = mmap(NULL, sizeof(uncounted), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		return false;
	counts = at;
	return true;
}

static bool take_option(const char *option)
{
	if (strncmp(option, "counts=", 7) == 0)
		return count_into(option + 7);
	if (strncmp(option, "opened=", 7) == 0)
		return (opened = open(option + 7, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) >= 0;
	if (strncmp(option, "kept=", 5) == 0)
		kept_s = atof(option + 5);
	else if (strcmp(option, "touched") == 0)
		touched_s = time(NULL);
	else if (strncmp(option, "delay=", 6) == 0)
		delay_us = (useconds_t)atol(option + 6);
	else if (strncmp(option, "every=", 6) == 0)
		every_us = (useconds_t)atol(option + 6);
	else if (strcmp(option, "pages") == 0)
		pages = true;
	else if (strcmp(option, "torn") == 0)
		torn = true;
	else if (strcmp(option, "direct") == 0)
		direct = true;
	else
		coarse = strcmp(option, "coarse") == 0;
	return true;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.init = op_init,
		.getattr = op_getattr,
		.readlink = op_readlink,
		.opendir = op_opendir,
		.readdir = op_readdir,
		.releasedir = op_releasedir,
		.open = op_open,
		.read = op_read,
		.release = op_release,
	};
	char type[64], threads[32], *args[] = { argv[0], "-f", argc > 2 ? argv[2] : NULL, type, threads, NULL };
	int i;

	if (argc < 3)
		return 2;
	snprintf(type, sizeof(type), "-osubtype=renumber_fs");
	snprintf(threads, sizeof(threads), "-omax_threads=%d", AT_ONCE);
	for (i = 3; i < argc; i++)
		if (strncmp(argv[i], "type=", 5) == 0)
			snprintf(type, sizeof(type), "-osubtype=%s", argv[i] + 5);
		else if (!take_option(argv[i])) {
			perror(argv[i]);
			return 1;
		}
	source = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (source < 0) {
		perror(argv[1]);
		return 1;
	}
	return fuse_main(every_us ? 5 : 4, args, &ops, NULL);
}
