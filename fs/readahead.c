/* The protocol can only lower read-ahead from the kernel's 128 KiB, in which pieces buffered reads
 * then arrive; sysfs can raise it, for the superuser. */
#include "readahead.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static unsigned long present_kb(const char *path)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 ? strtoul(text, NULL, 10) : 0;
}

static bool write_kb(const char *path, unsigned kb)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%u", kb);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = write(fd, text, (size_t)len);
	close(fd);
	return n == len;
}

bool fs_readahead_set(uint64_t dev, unsigned kb, char *hint, size_t hint_len)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	if (present_kb(path) == kb || write_kb(path, kb))
		return true;
	snprintf(hint, hint_len,
		 "reads arrive in small pieces; for faster ones while this mount lives, as root: "
		 "echo %u > %s",
		 kb, path);
	return false;
}
