/* A directory, passed through as network file systems show one: every second each file has another inode number,
 * as below mountpoint-s3 and newer rclone; with "coarse" its times are whole seconds.
 *
 *     renumber_fs SOURCE MOUNTPOINT [coarse]
 *
 * Read-only, in the foreground, until it is unmounted or gets a signal. */
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int source = -1;
static bool coarse;

/* Below SOURCE: "/a/b" -> "a/b". */
static const char *below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static void disguise(struct stat *st)
{
	st->st_ino += (ino_t)time(NULL) << 32;
	if (coarse)
		st->st_atim.tv_nsec = st->st_mtim.tv_nsec = st->st_ctim.tv_nsec = 0;
}

static int op_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	if (fstatat(source, below(path), st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	disguise(st);
	return 0;
}

static int op_readlink(const char *path, char *target, size_t size)
{
	ssize_t n = readlinkat(source, below(path), target, size - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return 0;
}

static int op_readdir(const char *path, void *to, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	int fd = openat(source, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	(void)off;
	(void)fi;
	(void)flags;
	if (!dir)
		return -errno;
	while ((e = readdir(dir)))
		fill(to, e->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static int op_open(const char *path, struct fuse_file_info *fi)
{
	int fd = openat(source, below(path), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int op_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = pread((int)fi->fh, buf, size, off);

	(void)path;
	return n < 0 ? -errno : (int)n;
}

static int op_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return close((int)fi->fh) < 0 ? -errno : 0;
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	(void)conn;
	config->use_ino = 1;
	config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.init = op_init,
		.getattr = op_getattr,
		.readlink = op_readlink,
		.readdir = op_readdir,
		.open = op_open,
		.read = op_read,
		.release = op_release,
	};
	char *args[] = { argv[0], "-f", argc > 2 ? argv[2] : NULL, NULL };

	if (argc < 3)
		return 2;
	coarse = argc > 3 && strcmp(argv[3], "coarse") == 0;
	source = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (source < 0) {
		perror(argv[1]);
		return 1;
	}
	return fuse_main(3, args, &ops, NULL);
}
