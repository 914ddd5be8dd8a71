/* io/direct.c: every byte at every alignment, what is asked of the kernel for it, and which way is chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/direct.h"
#include "io/source.h"

enum { FILE_BYTES = (3 << 20) + 1234, CACHESTAT = 451 };

static struct {
	int fd;
	uint8_t *bytes; /* what the file holds */
} f;

/* In the build's folder, which is on a disk more often than /tmp is. */
static int setup(void **state)
{
	char path[] = UNSHARD_BUILD "/uns_direct_XXXXXX";
	uint32_t x = 1;
	size_t i;

	(void)state;
	f.bytes = malloc(FILE_BYTES);
	for (i = 0; i < FILE_BYTES; i++)
		f.bytes[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
	f.fd = mkstemp(path);
	assert_true(f.fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(write(f.fd, f.bytes, FILE_BYTES), FILE_BYTES);
	assert_int_equal(fsync(f.fd), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(f.fd);
	free(f.bytes);
	return 0;
}

/* -- the kernel: what it is asked, and what it answers when a test says so -- */

static struct {
	uint32_t block, align; /* every read must keep to; 0 = is not looked at */
	size_t most;           /* bytes that a read returns at most; 0 = all */
	int error;             /* of the next read that keeps to `block` */
	bool refuse_flag, without_cachestat, without_nowait;
	size_t n_direct, n_bounced;
} kernel;

ssize_t __real_preadv64(int fd, const struct iovec *v, int n, off_t off);
ssize_t __wrap_preadv64(int fd, const struct iovec *v, int n, off_t off);
ssize_t __real_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __real_preadv64v2(int fd, const struct iovec *v, int n, off_t off, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int n, off_t off, int flags);
int __real_fcntl64(int fd, int command, int flags);
int __wrap_fcntl64(int fd, int command, int flags);
long __real_syscall(long number, long a, long b, long c, long d);
long __wrap_syscall(long number, long a, long b, long c, long d);

static bool is_aligned(uint64_t at, uint32_t to)
{
	return at % to == 0;
}

static ssize_t answer(int fd, const struct iovec *v, int n, off_t off)
{
	struct iovec cut[3];
	size_t left = kernel.most;
	int i;

	if (kernel.error) {
		errno = kernel.error;
		kernel.error = 0;
		return -1;
	}
	for (i = 0; left && i < n; i++, left -= cut[i - 1].iov_len) {
		cut[i] = v[i];
		if (cut[i].iov_len > left)
			cut[i].iov_len = left;
	}
	return __real_preadv64(fd, kernel.most ? cut : v, i ? i : n, off);
}

ssize_t __wrap_preadv64(int fd, const struct iovec *v, int n, off_t off)
{
	int i;

	kernel.n_direct++;
	assert_true(is_aligned((uint64_t)off, kernel.block));
	for (i = 0; i < n; i++) {
		assert_true(is_aligned((uintptr_t)v[i].iov_base, kernel.align));
		assert_true(v[i].iov_len && is_aligned(v[i].iov_len, kernel.block));
	}
	return answer(fd, v, n, off);
}

ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off)
{
	const struct iovec v = { buf, len };

	if (!kernel.block)
		return __real_pread64(fd, buf, len, off);
	kernel.n_bounced++;
	assert_true(is_aligned((uint64_t)off, kernel.block) && is_aligned(len, kernel.block) &&
		    is_aligned((uintptr_t)buf, kernel.align));
	return answer(fd, &v, 1, off);
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int n, off_t off, int flags)
{
	if (kernel.without_nowait) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return __real_preadv64v2(fd, v, n, off, flags);
}

int __wrap_fcntl64(int fd, int command, int flags)
{
	if (kernel.refuse_flag && command == F_SETFL && flags & O_DIRECT) {
		errno = EINVAL;
		return -1;
	}
	return __real_fcntl64(fd, command, flags);
}

long __wrap_syscall(long number, long a, long b, long c, long d)
{
	if (kernel.without_cachestat && number == CACHESTAT) {
		errno = ENOSYS;
		return -1;
	}
	return __real_syscall(number, a, b, c, d);
}

/* -- bytes -- */

/* Bytes [off, off+len) into memory that begins `shift` bytes behind a page, and nothing beside it. */
static void read_right(struct uns_direct *d, size_t shift, uint64_t off, size_t len)
{
	const size_t room = len + shift + 2 * 4096;
	struct uns_err err = { 0 };
	uint8_t *memory = aligned_alloc(4096, (room + 4095) / 4096 * 4096), *to = memory + shift + 64;
	size_t i;

	memset(memory, 0xee, room);
	if (uns_direct_pread(d, f.fd, to, len, off, "file", &err) < 0)
		fail_msg("%s", err.text);
	if (memcmp(to, f.bytes + off, len) != 0)
		fail_msg("%zu bytes at %llu, to %zu", len, (unsigned long long)off, shift);
	for (i = 0; i < 64; i++)
		assert_true(to[-1 - (long)i] == 0xee && to[len + i] == 0xee);
	free(memory);
}

static const uint64_t offs[] = { 0, 1, 511, 512, 4095, 4096, 4097, 100000, FILE_BYTES - 3000 };
static const size_t lens[] = { 0, 1, 2, 511, 512, 513, 3000, 4096, 12289, 1 << 20, 1234567, FILE_BYTES };
static const size_t shifts[] = { 0, 4, 448, 4032, 1 };

/* Whether a read is left out: under a sanitizer, which finds in a long one what it finds in a short one, each long
 * one is made at one of the shifts; with UNSHARD_LONG at each. */
static bool is_left_out(size_t i, size_t k, size_t s)
{
#ifdef __SANITIZE_ADDRESS__
	return lens[k] >= 1 << 20 && (i + k) % (sizeof(shifts) / sizeof(*shifts)) != s && !getenv("UNSHARD_LONG");
#else
	(void)i, (void)k, (void)s;
	return false;
#endif
}

static void read_all(struct uns_direct *d)
{
	size_t i, k, s;

	for (i = 0; i < sizeof(offs) / sizeof(*offs); i++)
		for (k = 0; k < sizeof(lens) / sizeof(*lens); k++)
			for (s = 0; s < sizeof(shifts) / sizeof(*shifts); s++)
				if (offs[i] + lens[k] <= FILE_BYTES && !is_left_out(i, k, s))
					read_right(d, shifts[s], offs[i], lens[k]);
}

/* Whatever alignment a file system asks for is kept to; also where the kernel gives less than it was asked for. */
static void at_every_alignment(void **state)
{
	static const struct {
		uint32_t block, align;
	} disks[] = { { 512, 4 }, { 512, 512 }, { 4096, 512 }, { 4096, 4096 }, { 65536, 4 } };
	static const size_t most[] = { 0, 65536, 65536 + 300 };
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(disks) / sizeof(*disks); i++)
		for (k = 0; k < sizeof(most) / sizeof(*most); k++) {
			struct uns_direct d = { disks[i].block, disks[i].align };

			memset(&kernel, 0, sizeof(kernel));
			kernel.block = disks[i].block;
			kernel.align = disks[i].align;
			kernel.most = most[k];
			read_all(&d);
			assert_true(uns_direct_is_on(&d));
			assert_true(kernel.n_direct && kernel.n_bounced);
		}
	memset(&kernel, 0, sizeof(kernel));
}

/* As this disk wants it, if it does. */
static void past_this_kernels_cache(void **state)
{
	struct uns_direct d = { 0 };

	(void)state;
	uns_direct_begin(&d, f.fd);
	kernel.block = 1;
	kernel.align = 1;
	if (uns_direct_is_on(&d)) {
		kernel.block = d.block_bytes;
		kernel.align = d.align_bytes;
		assert_true(fcntl(f.fd, F_GETFL) & O_DIRECT);
	}
	read_all(&d);
	memset(&kernel, 0, sizeof(kernel));
	assert_int_equal(fcntl(f.fd, F_SETFL, O_RDWR), 0);
}

/* A file in memory: there is no way past that, whatever the kernel answers. */
static void of_a_file_in_memory(void **state)
{
	struct uns_direct d = { 0 };
	const int disk = f.fd;

	(void)state;
	f.fd = memfd_create("file", MFD_CLOEXEC);
	assert_int_equal(write(f.fd, f.bytes, FILE_BYTES), FILE_BYTES);
	assert_false(uns_direct_suits(f.fd, 0, FILE_BYTES));
	uns_direct_begin(&d, f.fd);
	read_all(&d);
	close(f.fd);
	f.fd = disk;
}

/* -- what fails -- */

static void behind_the_end(void **state)
{
	uint8_t buf[8192];
	struct uns_err err = { 0 };
	struct uns_direct d = { 4096, 512 };

	(void)state;
	kernel.block = kernel.align = 512;
	assert_int_equal(uns_direct_pread(&d, f.fd, buf, sizeof(buf), FILE_BYTES - 5000, "file", &err), -ESTALE);
	assert_non_null(strstr(err.text, "file: the file ends at byte 3146962: it became shorter"));
	assert_int_equal(uns_direct_pread(&d, f.fd, buf, 1, FILE_BYTES, "file", NULL), -ESTALE);
	assert_int_equal(uns_direct_pread(&d, f.fd, buf, 1, FILE_BYTES + 9999, "file", NULL), -ESTALE);
	memset(&kernel, 0, sizeof(kernel));
	assert_int_equal(uns_direct_pread(&d, f.fd, buf, 8, INT64_MAX - 3, "file", NULL), -EBADMSG);
}

/* EINVAL: this read and all later ones go by way of the page cache. EINTR: again. Others are errors, in words. */
static void errors_of_a_read(void **state)
{
	static const struct {
		int error, code;
		bool stays_on;
	} cases[] = { { EINVAL, 0, false }, { EINTR, 0, true }, { EIO, -EIO, true }, { ESTALE, -ESTALE, true } };
	uint8_t buf[12345];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_direct d = { 4096, 512 };
		struct uns_err err = { 0 };

		kernel.block = kernel.align = 1;
		kernel.error = cases[i].error;
		memset(buf, 0, sizeof(buf));
		assert_int_equal(uns_direct_pread(&d, f.fd, buf, sizeof(buf), 77, "file", &err), cases[i].code);
		assert_int_equal(uns_direct_is_on(&d), cases[i].stays_on);
		if (cases[i].code)
			assert_non_null(strstr(err.text, "file: reading 12345 bytes at 77: "));
		else
			assert_memory_equal(buf, f.bytes + 77, sizeof(buf));
		memset(&kernel, 0, sizeof(kernel));
	}
}

static void refused_at_the_beginning(void **state)
{
	struct uns_direct d = { 0 };

	(void)state;
	kernel.refuse_flag = true;
	uns_direct_begin(&d, f.fd);
	assert_false(uns_direct_is_on(&d));
	read_all(&d);
	assert_int_equal(kernel.n_direct, 0);
	kernel.refuse_flag = false;
}

/* -- which way -- */

/* How many of the file's pages are in memory, as the kernel says by another call. */
static size_t pages_in_memory(void)
{
	unsigned char in_core[FILE_BYTES / 4096 + 1];
	void *mapped = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, f.fd, 0);
	size_t i, n = 0;

	assert_int_equal(mincore(mapped, FILE_BYTES, in_core), 0);
	for (i = 0; i < sizeof(in_core); i++)
		n += in_core[i] & 1;
	munmap(mapped, FILE_BYTES);
	return n;
}

static void what_is_cached_decides(void **state)
{
	uint8_t *buf = malloc(FILE_BYTES);
	struct uns_direct d = { 0 };
	bool possible;
	size_t k;

	(void)state;
	uns_direct_begin(&d, f.fd);
	assert_int_equal(fcntl(f.fd, F_SETFL, O_RDWR), 0);
	for (k = 0; k < 2; k++) {
		kernel.without_cachestat = k;
		assert_int_equal(pread(f.fd, buf, FILE_BYTES, 0), FILE_BYTES);
		assert_false(uns_direct_suits(f.fd, 0, FILE_BYTES));
		posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
		possible = uns_direct_is_on(&d) && pages_in_memory() == 0;
		printf("%s\n", possible ? "this file system reads past the cache"
					: "this file system does not, or keeps all of a file in memory");
		assert_int_equal(uns_direct_suits(f.fd, 0, FILE_BYTES), possible);
		assert_int_equal(uns_direct_suits(f.fd, 12345, 1 << 20), possible);
		assert_false(uns_direct_suits(f.fd, 0, (64 << 10) - 1));
		assert_int_equal(posix_fadvise(f.fd, 0, 0, POSIX_FADV_RANDOM), 0);
		assert_int_equal(pread(f.fd, buf, 1 << 20, 0), 1 << 20);
		assert_false(uns_direct_suits(f.fd, 0, 1 << 20));
		assert_int_equal(uns_direct_suits(f.fd, 1 << 20, 1 << 20), possible);
		assert_false(uns_direct_suits(f.fd, 0, (2 << 20) - 4096));
		assert_int_equal(uns_direct_suits(f.fd, 0, (2 << 20) + 4096), possible);
	}
	kernel.without_cachestat = false;
	free(buf);
}

/* As FUSE, which cannot be read without waiting. */
static void what_is_cached_is_read_now(void **state)
{
	static const size_t some[] = { 1, 4096, 1 << 20 };
	uint8_t *buf = malloc(FILE_BYTES);
	size_t i;

	(void)state;
	kernel.without_nowait = true;
	for (i = 0; i < sizeof(some) / sizeof(*some); i++) {
		posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
		if (pages_in_memory() == 0) {
			assert_int_equal(uns_fd_pread_now(f.fd, buf, some[i], 12345), -EAGAIN);
			assert_false(uns_fd_has(f.fd, some[i], 12345));
		}
		assert_int_equal(pread(f.fd, buf, FILE_BYTES, 0), FILE_BYTES);
		memset(buf, 0, some[i]);
		assert_int_equal(uns_fd_pread_now(f.fd, buf, some[i], 12345), 0);
		assert_memory_equal(buf, f.bytes + 12345, some[i]);
		assert_true(uns_fd_has(f.fd, some[i], 12345));
		kernel.without_cachestat = true;
		assert_int_equal(uns_fd_pread_now(f.fd, buf, some[i], 12345), -EAGAIN);
		assert_false(uns_fd_has(f.fd, some[i], 12345));
		kernel.without_cachestat = false;
	}
	kernel.without_nowait = false;
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_every_alignment),     cmocka_unit_test(past_this_kernels_cache),
		cmocka_unit_test(of_a_file_in_memory),    cmocka_unit_test(behind_the_end),
		cmocka_unit_test(errors_of_a_read),       cmocka_unit_test(refused_at_the_beginning),
		cmocka_unit_test(what_is_cached_decides), cmocka_unit_test(what_is_cached_is_read_now),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
