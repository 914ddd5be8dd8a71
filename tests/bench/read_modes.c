/* Reads one file as loaders do and prints the seconds it took:
 *
 *     read_modes read|mmap|threads|direct FILE
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, BLOCK_BYTES = 1 << 20, THREADS = 8, WORD_BYTES = sizeof(uint64_t) };

static double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

__attribute__((noreturn)) static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* Opened for each way of reading: a descriptor remembers the read-ahead it began with. */
static int open_file(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0)
		die(path);
	return fd;
}

static uint64_t size_of(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		die(path);
	return (uint64_t)st.st_size;
}

struct part {
	const char *path;
	int flags; /* of open */
	uint64_t at, end;
	pthread_t thread;
};

static void *read_part(void *arg)
{
	const struct part *part = arg;
	uint64_t at = part->at;
	int fd = open_file(part->path, part->flags);
	/* Page-aligned: a copy to a few bytes behind a page's start takes twice as long. */
	void *buf = aligned_alloc(PAGE_BYTES, BLOCK_BYTES);
	size_t want;
	ssize_t n;

	if (!buf)
		die("memory");
	memset(buf, 1, BLOCK_BYTES); /* page faults are not the file's */
	for (; at < part->end; at += (uint64_t)n) {
		want = part->end - at < BLOCK_BYTES && !part->flags ? (size_t)(part->end - at) : BLOCK_BYTES;
		n = pread(fd, buf, want, (off_t)at);
		if (n <= 0)
			die(part->path);
	}
	free(buf);
	close(fd);
	return NULL;
}

static void read_all(const char *path)
{
	struct part all = { .path = path, .end = size_of(path) };

	read_part(&all);
}

/* Each thread its share, in whole blocks. */
static void read_shares(const char *path, int flags)
{
	struct part part[THREADS];
	const uint64_t size = size_of(path), share = (size / BLOCK_BYTES + THREADS) / THREADS * BLOCK_BYTES;
	unsigned i, n = 0;

	for (i = 0; i < THREADS && share * i < size; i++, n++) {
		part[i] = (struct part){ path, flags, share * i, size - share * i < share ? size : share * (i + 1), 0 };
		if (pthread_create(&part[i].thread, NULL, read_part, &part[i]))
			die("thread");
	}
	for (i = 0; i < n; i++)
		pthread_join(part[i].thread, NULL);
}

static void read_by_threads(const char *path)
{
	read_shares(path, 0);
}

/* Past the page cache. */
static void read_direct(const char *path)
{
	read_shares(path, O_DIRECT);
}

/* Every word, in order, as a copy of the tensors would. */
static void read_mapped(const char *path)
{
	uint64_t size = size_of(path), i, sum = 0;
	int fd = open_file(path, 0);
	const uint64_t *words = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (words == MAP_FAILED)
		die(path);
	for (i = 0; i < size / WORD_BYTES; i++)
		sum += words[i];
	__asm__ volatile("" : : "r"(sum)); /* the sum is needed, says this */
	munmap((void *)words, size);
	close(fd);
}

static const struct {
	const char *name;
	void (*reader)(const char *path);
} modes[] = {
	{ "read", read_all },
	{ "mmap", read_mapped },
	{ "threads", read_by_threads },
	{ "direct", read_direct },
};

static bool measure(const char *mode, const char *path)
{
	double began;
	size_t i;

	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, mode))
			continue;
		began = now_seconds();
		modes[i].reader(path);
		printf("%.6f\n", now_seconds() - began);
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	if (argc == 3 && measure(argv[1], argv[2]))
		return 0;
	fprintf(stderr, "usage: %s read|mmap|threads|direct FILE\n", argv[0]);
	return 2;
}
