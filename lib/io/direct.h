/* Reading a file past the kernel's page cache (O_DIRECT): for much that is read once. Any thread. */
#ifndef UNS_IO_DIRECT_H
#define UNS_IO_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* By which way bytes of a file come. */
enum uns_way {
	UNS_WAY_CACHE,  /* the page cache */
	UNS_WAY_DIRECT, /* past it, where the file system lets them */
	UNS_WAY_SUITED, /* whichever uns_direct_suits names */
	UNS_WAY_LONG,   /* past it, if it is long and less than half of it is cached */
	UNS_WAY_TURNS,  /* the page cache, each file from front to back, one read at a time */
	UNS_WAY_THREADS, /* the page cache, asked for ahead by several threads */
	UNS_WAY_N,
};

/* The way's name in `-o reads=`, in the log and in the store: of CACHE, LONG, TURNS and THREADS. NULL = it has none. */
const char *uns_way_name(enum uns_way way);
/* The way of that name, of `len` bytes. false = there is none. */
bool uns_way_find(const char *name, size_t len, enum uns_way *out);

/* How one descriptor is read. All zero: by way of the page cache. */
struct uns_direct {
	_Atomic uint32_t block_bytes; /* offsets in the file are multiples of it; 0 = by way of the page cache */
	uint32_t align_bytes; /* addresses in memory are multiples of it */
};

/* Is [off, off+len) long, and less than half of it in the page cache? Where the kernel does not report what is cached,
 * as to a process that may neither own nor write the file, it counts as cached. A system call; reads nothing. */
bool uns_direct_is_long(int fd, uint64_t off, size_t len);

/* Is [off, off+len) better read past the page cache? It is if it is long, the file system reports how (statx's
 * STATX_DIOALIGN: file systems on local disks do, from Linux 6.1 on), and less than half of it is in the cache. Where
 * the kernel does not report what is cached, as to a process that may neither own nor write the file, it is not.
 * Two system calls; reads nothing. */
bool uns_direct_suits(int fd, uint64_t off, size_t len);

/* Let the descriptor be read past the page cache: so are all other users of its open file. `out` stays zero where the
 * file system refuses that. */
void uns_direct_begin(struct uns_direct *out, int fd);

/* uns_fd_pread, of any bytes into any memory. A file system that refuses only now is read by way of the page cache
 * from here on. */
int uns_direct_pread(struct uns_direct *direct, int fd, void *buf, size_t len, uint64_t off, const char *name,
		     struct uns_err *err);

static inline bool uns_direct_is_on(const struct uns_direct *direct)
{
	return atomic_load_explicit(&direct->block_bytes, memory_order_relaxed) != 0;
}

#endif
