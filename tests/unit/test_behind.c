/* Which pages of a shard go while it is read: only such as were read, none of those that are still to come, and in the
 * end all of them; in whatever order and by however many readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "engine/behind.h"
#include "model/layout.h"

enum {
	KiB = 1 << 10,
	MiB = 1 << 20,
	PAGE = 4 * KiB,
	GAP = 64 * KiB, /* of what was not read, so much may go between what was */
	HEADER = 100,   /* before a piece's elements */
	SHARD = 96 * MiB,
	SHARDS = 2,
	PAGES = SHARD / PAGE,
	SIZE = SHARDS * SHARD,
	REQUEST = MiB,
	FOLIO = 2 * MiB, /* goes as a whole, by one call */
	FOLIOS = SHARD / FOLIO,
	WORKERS = 8,
};

/* -- storage: which pages of the shards were read, and which have gone -- */

static bool was_read[SHARDS][PAGES + 1], folio_gone[SHARDS][FOLIOS];
static char dir[64];

static size_t shard_of(int fd)
{
	char link[64], path[128];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	assert_true(n > 0);
	return (size_t)(path[n - 1] - '0');
}

int __wrap_posix_fadvise64(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise64(int fd, off_t at, off_t len, int advice)
{
	size_t i = shard_of(fd);
	off_t page, folio, since = 0;

	assert_int_equal(advice, POSIX_FADV_DONTNEED);
	assert_true(len > 0); /* 0 would be all of the file */
	for (page = (at + PAGE - 1) / PAGE; (page + 1) * PAGE <= at + len; page++) {
		since = was_read[i][page] ? 0 : since + PAGE;
		if (since > GAP)
			fail_msg("shard %zu: page %lld has gone, and was not read", i, (long long)page);
	}
	for (folio = (at + FOLIO - 1) / FOLIO; (folio + 1) * FOLIO <= at + len; folio++)
		folio_gone[i][folio] = true;
	return 0;
}

/* -- a tensor whose halves lie in a shard each -- */

static struct uns_root *root;
static struct uns_catalog *cat;
static struct uns_engine *engine;
static struct uns_backing *backing;
static struct uns_arena arena;
static struct uns_layout layout;

static void add_shard(uint64_t i)
{
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .rank = (int32_t)i,
				   .offset_bytes = HEADER,
				   .length_bytes = SHARD,
				   .box = &(struct uns_box){ 1, { i * SHARD }, { SHARD } } };
	char name[32], path[128];
	int fd;

	snprintf(name, sizeof(name), "shard-%d", (int)i);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, HEADER + SHARD), 0);
	close(fd);
	assert_int_equal(uns_catalog_add_file(cat, root, name, &piece.file, NULL), 0);
	assert_int_equal(uns_catalog_add_piece(cat, &piece, NULL), 0);
}

static int setup(void **state)
{
	struct uns_engine_options options = { .n_threads = 1 };
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_tensor t = { .name = "w",
				.key = "w",
				.root = "",
				.dtype = UNS_U8,
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE,
				.shape = { .n = 1, .dim = { SIZE } } };
	uint32_t id;
	uint64_t i;

	(void)state;
	memset(was_read, 0, sizeof(was_read));
	memset(folio_gone, 0, sizeof(folio_gone));
	arena = (struct uns_arena)UNS_ARENA_INIT;
	strcpy(dir, "/tmp/unshard-behind-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &cat, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(cat, &t, &id, NULL), 0);
	for (i = 0; i < SHARDS; i++)
		add_shard(i);
	options.cache_dir = dir;
	assert_int_equal(uns_catalog_seal(cat, NULL), 0);
	assert_int_equal(uns_engine_new(&options, &engine, NULL), 0);
	assert_int_equal(uns_backing_new(engine, cat, &backing, NULL), 0);
	uns_layout_tensor(&b, cat->tensors, 0, SIZE, UNS_U8);
	assert_int_equal(uns_layout_build(&b, cat, &layout, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	char path[128];
	size_t i;

	(void)state;
	uns_backing_free(backing);
	uns_engine_free(engine);
	uns_catalog_free(cat);
	uns_root_close(root);
	uns_arena_fini(&arena);
	for (i = 0; i < SHARDS; i++) {
		snprintf(path, sizeof(path), "%s/shard-%zu", dir, i);
		unlink(path);
	}
	return rmdir(dir);
}

/* -- readers -- */

static void read_at(uint64_t at, size_t len)
{
	static uint8_t buf[REQUEST];
	uint64_t i;

	assert_int_equal(uns_read(backing, &layout, buf, len, at, NULL), len);
	for (i = at; i < at + len; i += PAGE)
		was_read[i / SHARD][(i % SHARD + HEADER) / PAGE] = true;
	i = at + len - 1;
	was_read[i / SHARD][(i % SHARD + HEADER) / PAGE] = true;
	uns_behind_read(backing, &layout, at, len);
}

static unsigned folios_gone(void)
{
	unsigned n = 0;
	size_t i, folio;

	for (i = 0; i < SHARDS; i++)
		for (folio = 0; folio < FOLIOS; folio++)
			n += folio_gone[i][folio];
	return n;
}

/* Requests of one reader come in any order within what the kernel reads ahead. */
static void all_go_behind_one_reader(void **state)
{
	static const unsigned order[] = { 1, 0, 3, 2 };
	unsigned i;

	(void)state;
	for (i = 0; i < SIZE / REQUEST; i++) {
		read_at((uint64_t)(i / 4 * 4 + order[i % 4]) * REQUEST, REQUEST);
		assert_true((folios_gone() + 8) * (uint64_t)FOLIO >= (i + 1) * (uint64_t)REQUEST);
	}
	uns_behind_end(backing);
	assert_int_equal(folios_gone(), SHARDS * FOLIOS);
}

/* Each takes a share of every tensor of 16 MiB; they are not equally fast. */
static void all_go_when_workers_have_read_their_shares(void **state)
{
	enum { TENSOR = 16 * MiB, SHARE = TENSOR / WORKERS };
	unsigned done[WORKERS] = { 0 }, w, left = WORKERS * (SIZE / TENSOR) * (SHARE / REQUEST);

	(void)state;
	srand(1);
	while (left) {
		w = (unsigned)rand() % WORKERS;
		if (done[w] == SIZE / TENSOR * (SHARE / REQUEST))
			continue;
		read_at((uint64_t)(done[w] / (SHARE / REQUEST)) * TENSOR + w * (uint64_t)SHARE +
				done[w] % (SHARE / REQUEST) * (uint64_t)REQUEST,
			REQUEST);
		done[w]++;
		left--;
	}
	uns_behind_end(backing);
	assert_true(folios_gone() >= SHARDS * FOLIOS * 9 / 10);
}

static void what_is_read_here_and_there_takes_no_neighbours_along(void **state)
{
	unsigned i;

	(void)state;
	srand(2);
	for (i = 0; i < 2000; i++)
		read_at((uint64_t)rand() % (SIZE - REQUEST), 1 + (size_t)rand() % (128 * KiB));
	uns_behind_end(backing);
}

static void what_is_read_again_and_again_is_all_that_goes(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 40; i++)
		read_at(10 * MiB, i < 20 ? REQUEST : 10 * KiB);
	uns_behind_end(backing);
	assert_int_equal(folios_gone(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_go_behind_one_reader, setup, teardown),
		cmocka_unit_test_setup_teardown(all_go_when_workers_have_read_their_shares, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_read_here_and_there_takes_no_neighbours_along, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_read_again_and_again_is_all_that_goes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
