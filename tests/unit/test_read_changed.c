/* Reading from sources that change or that are missing. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/unchecked.h"
#include "read_made.h"

/* -- system calls -- */

static _Atomic unsigned looks; /* statx so far */
/* Called once, before the read that comes after so many. */
static void (*at_read)(const struct made *m);
static const struct made *read_of;
static _Atomic int reads_before;

static void count_down(void)
{
	if (at_read && reads_before-- == 0)
		at_read(read_of);
}

int __real_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st)
{
	looks++;
	return __real_statx(dir, name, flags, mask, st);
}

ssize_t __real_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off);
ssize_t __wrap_pread64(int fd, void *buf, size_t len, off_t off)
{
	count_down();
	return __real_pread64(fd, buf, len, off);
}

/* Nothing is in memory: each piece is waited for. */
ssize_t __wrap_preadv64v2(int fd, const struct iovec *to, int n, off_t off, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *to, int n, off_t off, int flags)
{
	(void)fd, (void)to, (void)n, (void)off, (void)flags;
	errno = EAGAIN;
	return -1;
}

/* -- sources that change -- */

static struct file one_tensor(struct made *m, struct uns_engine_options options)
{
	add_grid(m, add_tensor(m, UNS_F32, shape2(50, 100)), 50, 100);
	open_engine(m, options);
	return make_file(m, NULL);
}

static void a_replaced_file_still_reads_while_open(void **state)
{
	struct uns_engine_stats stats;
	char from[256], to[256];
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	f = one_tensor(&m, (struct uns_engine_options){ 0 });
	check_window(&m, &f, 0, 100);
	put(&m, "new", "other bytes", 11);
	strcpy(from, full_path(&m, "new"));
	strcpy(to, full_path(&m, "shard-0.bin"));
	assert_int_equal(rename(from, to), 0);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.stale, 0);
	free(f.want);
	finish(&m);
}

/* A file that was read through a shard with two names, of which one is gone since. */
static struct file lose_a_link(struct made *m)
{
	char from[256], to[256];
	struct file f;

	start(m);
	add_grid(m, add_tensor(m, UNS_F32, shape2(50, 100)), 50, 100);
	strcpy(from, full_path(m, "shard-0.bin"));
	strcpy(to, full_path(m, "link"));
	assert_int_equal(link(from, to), 0);
	/* The link changed ctime: look at the file again, as a new catalog would. */
	assert_int_equal(uns_root_stat(m->root, "shard-0.bin", true, &m->cat->files[0].stat, NULL), 0);
	open_engine(m, (struct uns_engine_options){ 0 });
	f = make_file(m, NULL);
	check_window(m, &f, 0, 100);
	usleep(20000);
	assert_int_equal(unlink(to), 0);
	return f;
}

static void a_lost_link_does_not_matter(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	f = lose_a_link(&m);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	free(f.want);
	finish(&m);
}

static void rewrite(const struct made *m)
{
	int fd = open(full_path(m, "shard-0.bin"), O_WRONLY);

	assert_int_equal(pwrite(fd, "X", 1, 50), 1);
	close(fd);
}

/* In place, with its modification time put back: only ctime tells. */
static void rewrite_quietly(const struct made *m)
{
	const char *path = full_path(m, "shard-0.bin");
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	rewrite(m);
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ st.st_atim, st.st_mtim }, 0), 0);
}

static void a_write_after_a_lost_link_matters(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	f = lose_a_link(&m);
	check_window(&m, &f, 0, 100);
	usleep(20000);
	rewrite_quietly(&m);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

static void cut(const struct made *m)
{
	assert_int_equal(truncate(full_path(m, "shard-0.bin"), 1000), 0);
}

static void append(const struct made *m)
{
	int fd = open(full_path(m, "shard-0.bin"), O_WRONLY | O_APPEND);

	assert_int_equal(write(fd, "X", 1), 1);
	close(fd);
}

static void take_away(const struct made *m)
{
	assert_int_equal(unlink(full_path(m, "shard-0.bin")), 0);
}

static void replace(const struct made *m)
{
	char from[256];
	uint8_t *bytes = calloc(1, 30000);

	put(m, "new", bytes, 30000);
	free(bytes);
	strcpy(from, full_path(m, "new"));
	assert_int_equal(rename(from, full_path(m, "shard-0.bin")), 0);
}

/* open_first: the engine holds a descriptor when the change happens. */
static void changed_files_are_stale(void **state)
{
	static const struct {
		void (*change)(const struct made *m);
		bool open_first;
		const char *why;
	} cases[] = {
		{ rewrite, true, "was written to" }, { rewrite, false, "was written to" },
		{ cut, true, "has 1000 now" },       { cut, false, "has 1000 now" },
		{ append, true, "bytes when" },      { append, false, "bytes when" },
		{ take_away, false, "was removed" }, { replace, false, "replaced by another" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;

		start(&m);
		f = one_tensor(&m, (struct uns_engine_options){ 0 });
		if (cases[i].open_first)
			check_window(&m, &f, 0, 100);
		usleep(20000); /* time stamps have the kernel's tick */
		cases[i].change(&m);
		check_fails(&m, &f.layout, -ESTALE, cases[i].why, "shard-0.bin");
		uns_engine_stats(m.engine, &stats);
		assert_int_equal(stats.stale, 1);
		free(f.want);
		finish(&m);
	}
}

enum { PIECES = 12, PIECES_READ = 8 /* make_file leaves out a third of a first tensor */, PIECE_ELEMS = 400 };

/* A tensor in so many pieces that all lie in one file, with gaps, read by one thread. */
static struct file pieces_of_one_file(struct made *m)
{
	const size_t each = PIECE_ELEMS * sizeof(float), apart = each + 100;
	const uint32_t id = add_tensor(m, UNS_F32, shape2(PIECES, PIECE_ELEMS));
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE, .rank = -1, .length_bytes = each };
	uint8_t *bytes = calloc(PIECES, apart);
	struct uns_err err = { 0 };
	size_t i;

	for (i = 0; i < PIECES; i++)
		memcpy(bytes + i * apart, m->dense[id] + i * each, each);
	piece.file = add_file(m, bytes, PIECES * apart);
	for (i = 0; i < PIECES; i++) {
		piece.range.first = i * PIECE_ELEMS;
		piece.range.count = PIECE_ELEMS;
		piece.offset_bytes = i * apart;
		assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
	}
	free(bytes);
	open_engine(m, (struct uns_engine_options){ .n_threads = 1 });
	return make_file(m, NULL);
}

static void a_request_asks_once_for_each_file(void **state)
{
	struct uns_engine_stats before, after;
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	f = pieces_of_one_file(&m);
	check_window(&m, &f, 0, 100);
	uns_engine_stats(m.engine, &before);
	looks = 0;
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	assert_int_equal(looks, 1);
	uns_engine_stats(m.engine, &after);
	assert_int_equal(after.source_reads - before.source_reads, PIECES_READ);
	free(f.want);
	finish(&m);
}

/* Whenever it changes: before the first read, between two, or before the last. */
static void a_change_between_reads_of_one_request_is_stale(void **state)
{
	static const struct {
		void (*change)(const struct made *m);
		const char *why;
	} cases[] = { { rewrite, "was written to" }, { cut, "has 1000 now" }, { append, "bytes when" } };
	struct uns_engine_stats stats;
	struct made m;
	struct file f;
	size_t i;
	int k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (k = 0; k < PIECES_READ; k++) {
			start(&m);
			f = pieces_of_one_file(&m);
			check_window(&m, &f, 0, 100);
			usleep(20000); /* time stamps have the kernel's tick */
			read_of = &m;
			reads_before = k;
			at_read = cases[i].change;
			check_fails(&m, &f.layout, -ESTALE, cases[i].why, "shard-0.bin");
			at_read = NULL;
			assert_true(reads_before < 0);
			uns_engine_stats(m.engine, &stats);
			assert_true(stats.stale >= 1);
			free(f.want);
			finish(&m);
		}
}

/* More than are kept to be checked later. The last ones are checked at once. */
static void each_of_many_files_is_checked(void **state)
{
	enum { FILES = UNS_UNCHECKED_FILES + 6 };
	static const unsigned changed[] = { 1, UNS_UNCHECKED_FILES, UNS_UNCHECKED_FILES + 1, FILES };
	char name[32];
	struct made m;
	struct file f;
	size_t i;
	int fd;

	(void)state;
	for (i = 0; i < sizeof(changed) / sizeof(*changed); i++) {
		start(&m);
		add_grid(&m, add_tensor(&m, UNS_F32, shape2(1, 3)), 1, 3); /* shard-0.bin */
		add_grid(&m, add_tensor(&m, UNS_F32, shape2(FILES, 100)), 1, 100);
		open_engine(&m, (struct uns_engine_options){ 0 });
		f = make_file(&m, NULL);
		check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
		free(f.want);
		snprintf(name, sizeof(name), "shard-%u.bin", changed[i]);
		fd = open(full_path(&m, name), O_WRONLY | O_APPEND);
		assert_int_equal(write(fd, "X", 1), 1);
		close(fd);
		check_fails(&m, &f.layout, -ESTALE, "bytes when", name);
		finish(&m);
	}
}

static void a_changed_file_is_not_served_from_the_cache(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(100, 10));
	add_item_rows(&m, id, 0, 100, PLAIN, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	usleep(20000);
	rewrite(&m);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

static void a_missing_file_is_named(void **state)
{
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE, .range = { 0, 4 }, .length_bytes = 16 };
	struct uns_err err = { 0 };
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_tensor(&m, UNS_F32, shape2(2, 2));
	assert_int_equal(uns_catalog_add_file(m.cat, m.root, "__3_0.distcp", &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m.cat, &piece, &err), 0);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENODATA, "__3_0.distcp is missing", m.dir);
	free(f.want);
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replaced_file_still_reads_while_open),
		cmocka_unit_test(a_lost_link_does_not_matter),
		cmocka_unit_test(a_write_after_a_lost_link_matters),
		cmocka_unit_test(changed_files_are_stale),
		cmocka_unit_test(a_request_asks_once_for_each_file),
		cmocka_unit_test(a_change_between_reads_of_one_request_is_stale),
		cmocka_unit_test(each_of_many_files_is_checked),
		cmocka_unit_test(a_changed_file_is_not_served_from_the_cache),
		cmocka_unit_test(a_missing_file_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
