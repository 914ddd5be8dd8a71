/* Temporary files that vanish with their descriptor, also when the process is killed. */
#include "engine/spill.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"

static int fail_spill(const char *dir, int code, struct uns_err *err)
{
	if (code == -ENOSPC || code == -EDQUOT)
		return uns_fail(err, -ENOSPC,
				"%s: no space left for decoded data; free some or name another "
				"directory with cache_dir",
				dir);
	errno = -code;
	return uns_fail(err, -EIO, "%s: temporary file: %m", dir);
}

/* For file systems without O_TMPFILE. */
static int open_and_unlink(const char *dir)
{
	UNS_CLEANUP(uns_free_p) char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/unshard-XXXXXX", dir) < 0) {
		path = NULL;
		errno = ENOMEM;
		return -1;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

int uns_spill_open(const char *dir, int *fd, struct uns_err *err)
{
	*fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	if (*fd < 0)
		*fd = open_and_unlink(dir);
	return *fd < 0 ? fail_spill(dir, -errno, err) : 0;
}

int uns_spill_write(const char *dir, int fd, const void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const uint8_t *p = buf;
	ssize_t n;

	while (len) {
		n = pwrite(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail_spill(dir, n < 0 ? -errno : -ENOSPC, err);
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int uns_spill_read(const char *dir, int fd, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	uint8_t *p = buf;
	ssize_t n;

	while (len) {
		n = pread(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail_spill(dir, n < 0 ? -errno : -EIO, err);
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int uns_spill_map(const char *dir, int fd, uint64_t len, uint8_t **out, struct uns_err *err)
{
	int code = posix_fallocate(fd, 0, (off_t)len);
	void *p;

	if (code)
		return fail_spill(dir, -code, err);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail_spill(dir, -errno, err);
	*out = p;
	return 0;
}

void uns_spill_unmap(uint8_t *p, uint64_t len)
{
	munmap(p, len);
}
