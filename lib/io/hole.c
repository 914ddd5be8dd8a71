#include "io/hole.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t uns_fd_hole_at_end(int fd, uint64_t size)
{
	off_t at = 0, data;
	struct stat st;

	if (!size || fstat(fd, &st) < 0 || (uint64_t)st.st_blocks * 512 >= size)
		return size;
	if (lseek(fd, (off_t)size - 1, SEEK_DATA) >= 0 || errno != ENXIO)
		return size;
	while (at >= 0 && (data = lseek(fd, at, SEEK_DATA)) >= 0)
		at = lseek(fd, data, SEEK_HOLE);
	return at < 0 ? size : (uint64_t)at;
}
