/* Reading elements that are computed as sums of products. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"
#include "engine/cast.h"
#include "engine/engine.h"
#include "model/block_tensor.h"
#include "model/sum_tensor.h"
#include "read_made.h"

/* -- sums -- */

/* All elements of a catalog tensor, cast to `as` and from there; for the caller to free. */
static double *numbers(const struct made *m, uint32_t id, enum uns_dtype as)
{
	const struct uns_tensor *t = &m->cat->tensors[id];
	const size_t n = (size_t)uns_shape_elems(&t->shape);
	double *between = malloc(n * sizeof(*between)), *to = malloc(n * sizeof(*to));

	assert_true(between && to);
	uns_cast(t->dtype, m->dense[id], as, between, n);
	uns_cast(as, between, UNS_F64, to, n);
	free(between);
	return to;
}

/* The number of a dtype that is nearest to x; of two, the even one. torch's own cast may be one off, as it rounds to
 * fp32 first. */
static void put_nearest(double x, enum uns_dtype to, uint8_t *out)
{
	uint16_t code, best;
	double y, distance;
	int step;

	uns_cast(UNS_F64, &x, to, out, 1);
	if (uns_dtype_size(to) != 2)
		return;
	memcpy(&code, out, 2);
	uns_cast(to, &code, UNS_F64, &y, 1);
	distance = fabs(y - x);
	best = code;
	for (step = -1; step <= 1; step += 2) {
		const uint16_t other = (uint16_t)(code + step);

		uns_cast(to, &other, UNS_F64, &y, 1);
		if (fabs(y - x) < distance || (fabs(y - x) == distance && other % 2 == 0 && code % 2))
			best = other;
	}
	memcpy(out, &best, 2);
}

/* base + scale * left right', of catalog tensors base, left, right; `turned`: right' is stored, so that it is put in
 * order by blocks; `by`, if not 0: the catalog tensor of the scale, and how many elements of its own go with each. */
static const struct sum_row {
	uint32_t base, left, right;
	bool turned;
	uint64_t rows, columns, inner;
	double scale;
	enum uns_dtype left_as, out;
	uint32_t by;
	uint64_t behind;
	bool normed;
	uint64_t batch, first; /* of the product; of right */
} sum_rows[] = {
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 1, UNS_F16, UNS_F32, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 2.5, UNS_F16, UNS_F16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 2.5, UNS_BF16, UNS_F64, 0, 0, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_F32, 0, 0, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_BF16, UNS_BF16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 6, 600, true, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_BF16, 7, 41, true, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 600, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 8, 1, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_F32, 7, 1, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 6, false, 0, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 0, 0, false, 35, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 600, true, 35, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 0, 0, false, 0, 3000 },
};

static void add_factors(struct made *m)
{
	add_grid(m, add_tensor(m, UNS_BF16, shape2(70, 600)), 30, 250);
	add_grid(m, add_tensor(m, UNS_F32, shape2(5, 600)), 5, 600);
	add_grid(m, add_tensor(m, UNS_F16, shape2(70, 5)), 40, 5);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 41)), 33, 41);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 301)), 10, 301);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(41, 301)), 41, 100);
	add_grid(m, add_tensor(m, UNS_F32, shape2(70, 1)), 40, 1);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 1)), 33, 1);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(1, 600)), 1, 170);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(1200, 5)), 500, 5);
}

static const struct uns_tensor *put_sum(struct made *m, const struct sum_row *row, struct uns_text *want)
{
	const struct uns_tensor *t = m->cat->tensors, *made;
	const struct uns_shape turned = shape2(row->columns, row->inner);
	const struct uns_block block = { .source = { { &t[row->right], 0 } },
					 .n_sources = 1,
					 .len = { 1, row->inner, row->columns },
					 .reversed = true };
	struct uns_term term[] = { { .times = 1, .left = { &t[row->base], t[row->base].dtype, 0 } },
				   { .times = row->scale,
				     .left = { &t[row->left], row->left_as, 0 },
				     .right = { &t[row->right], t[row->right].dtype, row->first },
				     .inner = row->inner,
				     .batch = row->batch } };
	struct uns_sum all = { .term = term, .n = 2, .columns = row->columns, .divisor = 1 };
	struct uns_err err = { 0 };
	uint8_t one[8];
	uint64_t i, j, k, before;
	double sum[600], squares, times, *base, *left, *right, *scale;

	if (row->by)
		all.scale = (struct uns_scale){ { &t[row->by], UNS_F32, 0 }, row->behind, row->normed };
	if (row->turned)
		assert_int_equal(
			uns_block_tensor_make(m->cat, &turned, &block, 1, &m->arena, &term[1].right.tensor, &err), 0);
	assert_int_equal(uns_sum_tensor_make(&t[row->base], row->out, &all, &m->arena, &made, &err), 0);
	base = numbers(m, row->base, t[row->base].dtype);
	left = numbers(m, row->left, row->left_as);
	right = numbers(m, row->right, t[row->right].dtype);
	scale = numbers(m, row->by, UNS_F32);
	for (i = 0; i < row->rows; i++) {
		before = row->batch ? i / row->batch * row->columns : 0;
		squares = 0;
		for (j = 0; j < row->columns; j++) {
			sum[j] = 0;
			for (k = 0; k < row->inner; k++)
				sum[j] += left[i * row->inner + k] *
					  right[row->turned ? k * row->columns + j
							    : row->first + (before + j) * row->inner + k];
			sum[j] = base[i * row->columns + j] + row->scale * sum[j];
			squares += sum[j] * sum[j];
		}
		for (j = 0; j < row->columns; j++) {
			k = row->by ? (i * row->columns + j) / row->behind % uns_shape_elems(&t[row->by].shape) : 0;
			times = row->by ? scale[k] : 1;
			times = row->normed ? times / sqrt(squares) : times;
			put_nearest(times * sum[j], row->out, one);
			uns_text_add(want, one, uns_dtype_size(row->out));
		}
	}
	free(base);
	free(left);
	free(right);
	free(scale);
	return made;
}

/* Of the first n rows. */
static struct file make_sum_file(struct made *m, size_t n)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	const struct uns_tensor *made;
	struct uns_err err = { 0 };
	struct file f;
	size_t i;

	uns_layout_literal(&b, "odd", 3);
	uns_text_str(&want, "odd");
	for (i = 0; i < n; i++) {
		made = put_sum(m, &sum_rows[i], &want);
		uns_layout_tensor(&b, made, 0, uns_shape_elems(&made->shape), sum_rows[i].out);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

enum { N_ROWS = sizeof(sum_rows) / sizeof(sum_rows[0]) };

/* By many threads, also where what is put in order does not fit into memory. */
static void reads_sums(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 0 };
	struct made m;
	struct file f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
		start(&m);
		add_factors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
		f = make_sum_file(&m, N_ROWS);
		check_windows(&m, &f, 100);
		if (!i)
			read_by_threads(&m, &f);
		free(f.want);
		finish(&m);
	}
}

/* Each of the files that a sum is made of, also the one that is kept in the cache: of all rows, and of the first alone,
 * which needs only what was made of it. */
static void a_sum_of_changed_files_is_stale(void **state)
{
	static const char *const files[] = { "shard-0.bin", "shard-9.bin", "shard-10.bin" };
	const size_t n_files = sizeof(files) / sizeof(files[0]);
	struct made m;
	struct file f;
	size_t i;
	int fd;

	(void)state;
	for (i = 0; i < 2 * n_files; i++) {
		const char *file = files[i % n_files];

		start(&m);
		add_factors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
		f = make_sum_file(&m, i < n_files ? N_ROWS : 1);
		check_window(&m, &f, 0, 10000);
		usleep(20000); /* time stamps have the kernel's tick */
		fd = open(full_path(&m, file), O_WRONLY);
		assert_int_equal(pwrite(fd, "X", 1, 0), 1);
		close(fd);
		check_fails(&m, &f.layout, -ESTALE, "was written to", file);
		free(f.want);
		finish(&m);
	}
}

/* Zeros, in a file without blocks. */
static void add_empty(struct made *m, uint64_t rows, uint64_t columns)
{
	const struct uns_tensor t = { .name = "w",
				      .key = "model.w",
				      .root = "",
				      .dtype = UNS_BF16,
				      .shape = shape2(rows, columns),
				      UNS_TENSOR_ALONE };
	struct uns_piece piece = {
		.kind = UNS_PIECE_RANGE, .range = { 0, rows * columns }, .rank = -1, .length_bytes = rows * columns * 2
	};
	struct uns_err err = { 0 };
	char name[32];
	uint32_t id;

	snprintf(name, sizeof(name), "shard-%u.bin", m->n_files++);
	put(m, name, "", 0);
	assert_int_equal(truncate(full_path(m, name), (off_t)piece.length_bytes), 0);
	assert_int_equal(uns_catalog_add_file(m->cat, m->root, name, &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_tensor(m->cat, &t, &id, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
}

static long peak_kib(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Reading all of a sum takes a few MiB beside the caller's buffer, however large it is: the first test, as it looks at
 * the process's peak. */
static void a_sum_needs_little_memory(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* where memory is not what it is elsewhere */
	enum { ROWS = 1 << 10, COLUMNS = 1024, MOST_KIB = 12 << 10 };
#else
	enum { ROWS = 24 << 10, COLUMNS = 1024, MOST_KIB = 12 << 10 };
#endif
	const size_t size = (size_t)ROWS * COLUMNS * 2;
	uint8_t *buf = malloc(size);
	const struct uns_tensor *t, *made;
	struct uns_layout_builder b = { 0 };
	struct uns_layout layout;
	struct uns_err err = { 0 };
	struct made m;
	long before;

	(void)state;
	start(&m);
	b.arena = &m.arena;
	add_empty(&m, ROWS, COLUMNS);
	add_empty(&m, ROWS, 8);
	add_empty(&m, COLUMNS, 8);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
	t = m.cat->tensors;
	{
		const struct uns_term term[] = {
			{ .times = 1, .left = { &t[0], UNS_BF16, 0 } },
			{ .times = 1, .left = { &t[1], UNS_BF16, 0 }, .right = { &t[2], UNS_BF16, 0 }, .inner = 8 }
		};

		const struct uns_sum sum = { .term = term, .n = 2, .columns = COLUMNS, .divisor = 1 };

		assert_int_equal(uns_sum_tensor_make(&t[0], UNS_BF16, &sum, &m.arena, &made, &err), 0);
	}
	uns_layout_tensor(&b, made, 0, size / 2, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, m.cat, &layout, &err), 0);
	memset(buf, 1, size);
	before = peak_kib();
	assert_int_equal(uns_read(m.backing, &layout, buf, size, 0, &err), (ssize_t)size);
	assert_true(peak_kib() - before < MOST_KIB);
	assert_int_equal(buf[0], 0);
	assert_memory_equal(buf, buf + 1, size - 1);
	free(buf);
	finish(&m);
}

static void refuses_what_is_no_sum(void **state)
{
	const struct uns_tensor *made;
	struct uns_err err = { 0 };
	struct made m;

	(void)state;
	start(&m);
	add_empty(&m, 20, 30);
	add_empty(&m, 20, 4);
	add_empty(&m, 30, 4);
	add_empty(&m, 100, 1);
	m.cat->tensors[2].dtype = UNS_I64;
	{
		const struct uns_tensor *t = m.cat->tensors;
		const struct uns_term other_size = { .left = { &t[1], UNS_BF16, 0 } };
		const struct uns_term integers = { .left = { &t[1], UNS_BF16, 0 },
						   .right = { &t[2], UNS_I64, 0 },
						   .inner = 4 };
		const struct uns_term same = { .times = 1, .left = { &t[0], UNS_BF16, 0 } };

		const struct {
			const struct uns_term *term;
			uint64_t columns;
			const struct uns_tensor *by;
			uint64_t behind;
			bool normed;
			enum uns_dtype out;
			int code;
		} rows[] = { { &other_size, 30, NULL, 0, false, UNS_BF16, -EBADMSG },
			     { &integers, 30, NULL, 0, false, UNS_BF16, -ENOTSUP },
			     { &integers, 7, NULL, 0, false, UNS_BF16, -EBADMSG },
			     { &integers, 30, NULL, 0, false, UNS_I64, -ENOTSUP },
			     { &same, 30, NULL, 0, false, UNS_BF16, 0 },
			     { &same, 0, &t[1], 1, false, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 1, false, UNS_BF16, 0 },
			     { &same, 0, &t[3], 3, false, UNS_BF16, 0 },
			     { &same, 0, &t[3], 7, false, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 3, true, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 6, true, UNS_BF16, 0 },
			     { &same, 0, &t[2], 5, false, UNS_BF16, -ENOTSUP } };
		size_t i;

		for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			const struct uns_sum sum = {
				.term = rows[i].term,
				.n = 1,
				.columns = rows[i].columns,
				.divisor = 1,
				.scale = { { rows[i].by, UNS_BF16, 0 }, rows[i].behind, rows[i].normed }
			};

			assert_int_equal(uns_sum_tensor_make(&t[0], rows[i].out, &sum, &m.arena, &made, &err),
					 rows[i].code);
		}
	}
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sum_needs_little_memory),
		cmocka_unit_test(reads_sums),
		cmocka_unit_test(a_sum_of_changed_files_is_stale),
		cmocka_unit_test(refuses_what_is_no_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
