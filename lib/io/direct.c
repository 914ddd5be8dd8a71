#include "io/direct.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "io/pages.h"
#include "io/source.h"

enum {
	LEAST_BYTES = 64 << 10,  /* of less, what the kernel reads around it into the cache is worth more */
	BOUNCE_BYTES = 1 << 20,  /* read at once into memory of our own */
	USUAL_ALIGN = 4096,      /* where the file system reports none: right for all disks */
	PAGES_AT_ONCE = 4096,
};

/* -- which way -- */

static const char *const names[UNS_WAY_N] = {
	[UNS_WAY_CACHE] = "cached",
	[UNS_WAY_LONG] = "direct",
	[UNS_WAY_TURNS] = "ordered",
	[UNS_WAY_THREADS] = "threads",
};

const char *uns_way_name(enum uns_way way)
{
	return names[way];
}

bool uns_way_find(const char *name, size_t len, enum uns_way *out)
{
	unsigned i;

	for (i = 0; i < UNS_WAY_N; i++)
		if (names[i] && strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
			*out = (enum uns_way)i;
			return true;
		}
	return false;
}

/* false: it reports none. *block 0: it refuses, for this file. */
static bool ask_file_system(int fd, uint32_t *block, uint32_t *align)
{
#ifdef STATX_DIOALIGN
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0 || !(st.stx_mask & STATX_DIOALIGN))
		return false;
	*block = st.stx_dio_offset_align;
	*align = st.stx_dio_mem_align;
	return true;
#else
	(void)fd, (void)block, (void)align;
	return false;
#endif
}

/* What cannot be mapped counts as cached. */
static uint64_t ask_mincore(int fd, uint64_t first_page, uint64_t n, uint64_t page_bytes)
{
	unsigned char in_core[PAGES_AT_ONCE];
	uint64_t at, k, some, cached = 0;
	void *mapped;

	for (at = 0; at < n; at += some) {
		some = uns_u64_min(n - at, PAGES_AT_ONCE);
		mapped = mmap(NULL, some * page_bytes, PROT_READ, MAP_SHARED, fd,
			      (off_t)((first_page + at) * page_bytes));
		if (mapped == MAP_FAILED)
			return n;
		if (mincore(mapped, some * page_bytes, in_core) < 0)
			memset(in_core, 1, some);
		munmap(mapped, some * page_bytes);
		for (k = 0; k < some; k++)
			cached += in_core[k] & 1;
	}
	return cached;
}

static bool is_cached(int fd, uint64_t off, size_t len)
{
	const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), first = off / page_bytes,
		       n = uns_pages_of(off, len);
	uint64_t cached;

	if (!uns_pages_cached(fd, off, len, &cached))
		cached = ask_mincore(fd, first, n, page_bytes);
	return 2 * cached >= n;
}

bool uns_direct_is_long(int fd, uint64_t off, size_t len)
{
	return len >= LEAST_BYTES && !is_cached(fd, off, len);
}

bool uns_direct_suits(int fd, uint64_t off, size_t len)
{
	uint32_t block, align;

	return len >= LEAST_BYTES && ask_file_system(fd, &block, &align) && block && !is_cached(fd, off, len);
}

static bool set_direct(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

void uns_direct_begin(struct uns_direct *out, int fd)
{
	uint32_t block = USUAL_ALIGN, align = USUAL_ALIGN;

	ask_file_system(fd, &block, &align);
	out->align_bytes = align;
	atomic_store(&out->block_bytes, block && set_direct(fd, true) ? block : 0);
}

/* -- reading -- */

/* Wanted are bytes [off, off+len) of the file. What is read begins and ends with whole blocks, `edge` bytes before. */
struct aligned {
	uint32_t block;
	size_t edge;
	uint64_t off;
	size_t len;
	uint8_t *to;
};

static size_t whole_blocks(const struct aligned *a, size_t n)
{
	return (n + a->block - 1) / a->block * a->block;
}

/* Straight to where it is wanted, but for the first and the last block, which hold other bytes too. */
static ssize_t read_in_place(const struct aligned *a, int fd, uint8_t *edges)
{
	const size_t first = a->edge ? (size_t)uns_u64_min(a->block - a->edge, a->len) : 0;
	const size_t whole = (a->len - first) / a->block * a->block, last = a->len - first - whole;
	struct iovec v[3];
	int n = 0;
	ssize_t got;

	if (first)
		v[n++] = (struct iovec){ edges, a->block };
	if (whole)
		v[n++] = (struct iovec){ a->to + first, whole };
	if (last)
		v[n++] = (struct iovec){ edges + a->block, a->block };
	got = preadv(fd, v, n, (off_t)(a->off - a->edge));
	if (got <= (ssize_t)a->edge)
		return got < 0 ? got : 0;
	got = (ssize_t)uns_u64_min((uint64_t)got - a->edge, a->len);
	memcpy(a->to, edges + a->edge, (size_t)uns_u64_min(first, (uint64_t)got));
	if ((size_t)got > first + whole)
		memcpy(a->to + first + whole, edges + a->block, (size_t)got - first - whole);
	return got;
}

static ssize_t read_and_copy(const struct aligned *a, int fd, uint8_t *bounce)
{
	const size_t len = (size_t)uns_u64_min(a->len, BOUNCE_BYTES);
	ssize_t got = pread(fd, bounce, whole_blocks(a, a->edge + len), (off_t)(a->off - a->edge));

	if (got <= (ssize_t)a->edge)
		return got < 0 ? got : 0;
	got = (ssize_t)uns_u64_min((uint64_t)got - a->edge, len);
	memcpy(a->to, bounce + a->edge, (size_t)got);
	return got;
}

/* Bytes read, some of those that are wanted; 0 at the end of the file; -1 and errno. */
static ssize_t read_some(const struct aligned *a, uint32_t align, int fd)
{
	const uint8_t *middle = a->to + (a->edge ? a->block - a->edge : 0);
	const bool in_place = (uintptr_t)middle % align == 0 && a->len >= a->block;
	const size_t blocks = 2 * (size_t)a->block + (in_place ? 0 : uns_u64_min(a->len, BOUNCE_BYTES));
	UNS_CLEANUP(uns_free_p) void *own = NULL;
	const size_t own_align = (size_t)uns_u64_max(align, USUAL_ALIGN);

	if (posix_memalign(&own, own_align, blocks)) {
		errno = ENOMEM;
		return -1;
	}
	return in_place ? read_in_place(a, fd, own) : read_and_copy(a, fd, own);
}

int uns_direct_pread(struct uns_direct *direct, int fd, void *buf, size_t len, uint64_t off, const char *name,
		     struct uns_err *err)
{
	struct aligned a = { .block = atomic_load(&direct->block_bytes), .off = off, .len = len, .to = buf };
	ssize_t n;

	while (a.block && a.len && a.off <= INT64_MAX - a.len - a.block) {
		a.edge = (size_t)(a.off % a.block);
		n = read_some(&a, direct->align_bytes, fd);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EINVAL && set_direct(fd, false)) {
			atomic_store(&direct->block_bytes, 0);
			break;
		}
		if (n < 0 && errno == ENOMEM)
			return uns_oom(err);
		if (n <= 0)
			return uns_fd_pread_fail(n, a.len, a.off, name, err);
		a.to += n;
		a.off += (uint64_t)n;
		a.len -= (size_t)n;
	}
	return uns_fd_pread(fd, a.to, a.len, a.off, name, err);
}
