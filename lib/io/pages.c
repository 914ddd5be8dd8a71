#include "io/pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t uns_pages_of(uint64_t off, uint64_t len)
{
	const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);

	return (off + len - 1) / page_bytes - off / page_bytes + 1;
}

/* cachestat(2), which is not in every libc yet. */
bool uns_pages_cached(int fd, uint64_t off, uint64_t len, uint64_t *cached)
{
	const long number = 451;
	const struct {
		uint64_t off, len;
	} range = { off, len };
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} found;

	if (syscall(number, fd, &range, &found, 0) != 0)
		return false;
	*cached = found.cached;
	return true;
}

bool uns_page_has_come(int fd, uint64_t at)
{
	const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char in_core = 1;
	void *page = mmap(NULL, (size_t)page_bytes, PROT_READ, MAP_SHARED, fd, (off_t)(at / page_bytes * page_bytes));

	if (page == MAP_FAILED)
		return true;
	if (mincore(page, (size_t)page_bytes, &in_core) < 0)
		in_core = 1;
	munmap(page, (size_t)page_bytes);
	return in_core & 1;
}
