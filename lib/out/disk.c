#include "out/disk.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "io/source.h"

enum { COPY_BYTES = 8 << 20, BUFFER_BYTES = 1 << 20, OPEN_FILES = 16 };

int uns_fail_errno(const char *path, struct uns_err *err)
{
	int code = -errno;

	return uns_fail(err, code, "%s: %s", path, strerror(-code));
}

int uns_write(int fd, const void *bytes, size_t len, int64_t off, const char *path, struct uns_err *err)
{
	const uint8_t *p = bytes;
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = off == UNS_AT_CURSOR ? write(fd, p + done, len - done)
					 : pwrite(fd, p + done, len - done, off + (int64_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return uns_fail_errno(path, err);
		if (n == 0)
			return uns_fail(err, -ENOSPC, "%s: %s", path, strerror(ENOSPC));
		done += (size_t)n;
	}
	return 0;
}

int uns_open_to_write(const char *path, int flags, mode_t mode, int *fd, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int own = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
	struct stat st;

	if (own < 0 || fstat(own, &st) < 0)
		return uns_fail_errno(path, err);
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		return uns_fail(err, -EEXIST, "%s is %s, and a write to it would change more than this file", path,
				S_ISREG(st.st_mode) ? "a file with another name (a hard link)" : "no regular file");
	*fd = own;
	own = -1;
	return 0;
}

/* umask(2) cannot be asked without changing it for all threads. */
mode_t uns_umask(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned mask = 077;
	char line[128];

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	if (status)
		fclose(status);
	return (mode_t)mask;
}

int uns_sync_dir(const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? uns_fail_errno(path, err) : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	remove(path);
	return 0;
}

void uns_remove_tree(const char *path)
{
	nftw(path, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}

bool uns_share_blocks(int from, int to)
{
	return ioctl(to, FICLONE, from) == 0;
}

uint64_t uns_copy_in_kernel(int from, int to, uint64_t off, uint64_t len)
{
	off_t in = (off_t)off, out = (off_t)off;
	ssize_t n = 1;

	while (n > 0 && (uint64_t)in < off + len) {
		n = copy_file_range(from, &in, to, &out, off + len - (uint64_t)in, 0);
		if (n < 0 && errno == EINTR)
			n = 1;
	}
	return (uint64_t)in - off;
}

int uns_copy_file(int from, const char *from_path, int to, const char *to_path, uint64_t size,
		  const struct uns_copied *told, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *buf = NULL;
	uint64_t at, wanted, n;

	if (uns_share_blocks(from, to))
		return told->step(told->ctx, size, err);
	for (at = 0; at < size; at += n) {
		wanted = uns_u64_min(COPY_BYTES, size - at);
		n = buf ? 0 : uns_copy_in_kernel(from, to, at, wanted);
		if (n < wanted) {
			if (!buf && !(buf = malloc(BUFFER_BYTES)))
				return uns_oom(err);
			wanted = uns_u64_min(BUFFER_BYTES, wanted - n);
			UNS_TRY(uns_fd_pread(from, buf, wanted, at + n, from_path, err));
			UNS_TRY(uns_write(to, buf, wanted, (int64_t)(at + n), to_path, err));
			n += wanted;
		}
		UNS_TRY(told->step(told->ctx, n, err));
	}
	return 0;
}
