/* Reading from storage that makes one wait, and by many threads. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/engine.h"
#include "read_made.h"

/* -- storage that makes one wait -- */

static _Atomic unsigned waiting, most_waiting, wanted_waiting;

/* The engine's `delay_read_us`, in place of libc's. A test may want so many reads to wait at once: none
 * comes back before they do, or before it is clear that they never will. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	unsigned n = ++waiting, most = most_waiting, i;

	while (n > most && !atomic_compare_exchange_weak(&most_waiting, &most, n))
		;
	for (i = 0; most_waiting < wanted_waiting && i < 3000; i++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
	clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
	waiting--;
	return 0;
}

static void want_waiting(unsigned n)
{
	wanted_waiting = n;
	most_waiting = 0;
}

/* Storage that answers late must not make 64 items wait one after the other. */
static void resolves_in_parallel(void **state)
{
	struct uns_engine_stats stats;
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(64, 33));
	for (r = 0; r < 64; r++)
		add_item_rows(&m, id, r, 1, PLAIN, UNS_CODEC_NONE);
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1000, .n_threads = 32 });
	f = make_file(&m, NULL);
	check_window(&m, &f, f.layout.size_bytes - 10, 1); /* of one item, whose reads wait alone */
	want_waiting(16);
	assert_int_equal(uns_backing_resolve(m.backing, &m.cat->tensors[0], NULL), 0);
	assert_true(most_waiting >= 16);
	want_waiting(0);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.items_resolved, 64);
	free(f.want);
	finish(&m);
}

/* -- slow storage -- */

static void waits_for_all_pieces_at_once(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape2(100, 33)), 1, 33); /* more than are taken at once */
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1000, .n_threads = 32 });
	f = make_file(&m, NULL);
	want_waiting(16);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	assert_true(most_waiting >= 16);
	want_waiting(0);
	free(f.want);
	finish(&m);
}

static void reads_any_window_of_slow_storage(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32,  UNS_BF16, UNS_U8,  UNS_F16,  UNS_I64,
					      UNS_BF16, UNS_F16,  UNS_F32, UNS_BF16, UNS_F64 };
	struct made m;
	struct file f;
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		start(&m);
		add_raw_tensors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20, .delay_read_us = 1 });
		f = make_file(&m, i ? out : NULL);
		check_windows(&m, &f, 100);
		free(f.want);
		finish(&m);
	}
}

static void slow_items_of_all_kinds(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(40, 33));
	for (r = 0; r < 40; r += 4) {
		add_item_rows(&m, id, r, 1, PLAIN, UNS_CODEC_NONE);
		add_item_rows(&m, id, r + 1, 1, PLAIN, UNS_CODEC_ZSTD);
		add_item_rows(&m, id, r + 2, 2, TRANSPOSED, r % 8 ? UNS_CODEC_ZSTD : UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1000, .delay_read_us = 1, .spill_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 200);
	free(f.want);
	finish(&m);
}

static void a_missing_one_of_many_is_named(void **state)
{
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .box = &(struct uns_box){ 2, { 7, 0 }, { 1, 33 } },
				   .length_bytes = 33 * 2 };
	struct uns_err err = { 0 };
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(9, 33));
	for (r = 0; r < 7; r++)
		add_raw_box(&m, id, (struct uns_box){ 2, { r, 0 }, { 1, 33 } });
	assert_int_equal(uns_catalog_add_file(m.cat, m.root, "__3_0.distcp", &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m.cat, &piece, &err), 0);
	add_raw_box(&m, id, (struct uns_box){ 2, { 8, 0 }, { 1, 33 } });
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENODATA, "__3_0.distcp is missing", m.dir);
	free(f.want);
	finish(&m);
}

static void many_threads_read(void **state)
{
	static const uint64_t budgets[] = { 0, 300 << 10, 16 << 20 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;
		uint32_t id;
		uint64_t r;

		start(&m);
		id = add_tensor(&m, UNS_BF16, shape2(40, 330));
		for (r = 0; r < 40; r += 2)
			add_item_rows(&m, id, r, 2, PLAIN, UNS_CODEC_NONE);
		id = add_tensor(&m, UNS_F32, shape2(60, 210));
		for (r = 0; r < 60; r += 10)
			add_item_rows(&m, id, r, 10, r % 20 ? TRANSPOSED : PLAIN, UNS_CODEC_ZSTD);
		open_engine(&m, (struct uns_engine_options){
					.cache_bytes = budgets[i], .spill_bytes = 200 << 10, .max_open_files = 3 });
		f = make_file(&m, NULL);
		read_by_threads(&m, &f);
		uns_engine_stats(m.engine, &stats);
		assert_true(stats.open_files <= 3);
		assert_true(stats.cache_bytes <= budgets[i]);
		assert_true(stats.spill_bytes <= 200 << 10);
		free(f.want);
		finish(&m);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolves_in_parallel),
		cmocka_unit_test(waits_for_all_pieces_at_once),
		cmocka_unit_test(reads_any_window_of_slow_storage),
		cmocka_unit_test(slow_items_of_all_kinds),
		cmocka_unit_test(a_missing_one_of_many_is_named),
		cmocka_unit_test(many_threads_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
