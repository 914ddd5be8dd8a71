/* Reading tensors that are put together from parts of others. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "engine/cast.h"
#include "engine/engine.h"
#include "model/joined_tensor.h"
#include "read_made.h"

/* -- joined tensors -- */

enum { MAX_PARTS = 4 };

/* Parts by the number of their tensor in the catalog; `by_default`: one behind the other. */
static const struct joined_row {
	struct uns_shape shape;
	size_t n;
	struct {
		size_t tensor;
		uint64_t first_elem, n_elems;
	} part[MAX_PARTS];
	bool by_default;
	struct uns_joined_order order;
} joined_rows[] = {
	{ { 2, { 50, 4 } }, 3, { { 1, 40, 100 }, { 3, 7, 60 }, { 1, 500, 40 } }, true, { 0 } },
	{ { 1, { 160 } }, 2, { { 1, 40, 100 }, { 1, 140, 60 } }, true, { 0 } },
	{ { 2, { 41, 29 } }, 2, { { 3, 0, 29 }, { 3, 29, 1160 } }, true, { 0 } },
	/* columns of gate and up in turns, and behind each other; rows in turns */
	{ { 3, { 2, 5, 8 } },
	  4,
	  { { 1, 0, 20 }, { 3, 100, 20 }, { 1, 700, 20 }, { 3, 3, 20 } },
	  false,
	  { 2, 40, 0, { { 5, 1 }, { 4, 5 }, { 2, 20 } } } },
	{ { 3, { 2, 5, 8 } },
	  4,
	  { { 1, 0, 20 }, { 3, 100, 20 }, { 1, 700, 20 }, { 3, 3, 20 } },
	  false,
	  { 2, 40, 0, { { 5, 1 }, { 2, 20 }, { 4, 5 } } } },
	{ { 3, { 1, 8, 5 } },
	  2,
	  { { 1, 0, 20 }, { 3, 100, 20 } },
	  false,
	  { 1, 40, 0, { { 4, 5 }, { 2, 20 }, { 5, 1 } } } },
	/* every second column of a matrix as rows; the same of each row of another */
	{ { 2, { 14, 20 } }, 1, { { 3, 29, 580 } }, false, { 1, 580, 1, { { 0 }, { 14, 2 }, { 20, 29 } } } },
	{ { 2, { 37, 26 } }, 1, { { 0, 0, 1961 } }, false, { 37, 53, 1, { { 0 }, { 0 }, { 26, 2 } } } },
	/* a source that must be decoded; planes larger than scratch memory */
	{ { 2, { 18, 24 } }, 1, { { 4, 0, 432 } }, false, { 1, 432, 0, { { 0 }, { 18, 1 }, { 24, 18 } } } },
	{ { 2, { 24, 18 } }, 2, { { 4, 0, 200 }, { 4, 200, 232 } }, true, { 0 } },
	{ { 2, { 300000, 3 } },
	  1,
	  { { 7, 0, 900000 } },
	  false,
	  { 1, 900000, 0, { { 0 }, { 300000, 1 }, { 3, 300000 } } } },
	{ { 1, { 0 } }, 1, { { 6, 0, 0 } }, true, { 0 } },
};

/* What the row's elements are, by the definition of the order. */
static uint8_t *joined_dense(const struct made *m, const struct joined_row *row)
{
	const size_t es = uns_dtype_size(m->cat->tensors[row->part[0].tensor].dtype);
	const struct uns_joined_loop *l = row->order.loop;
	UNS_CLEANUP(uns_text_fini) struct uns_text source = UNS_TEXT_INIT;
	struct uns_text out = UNS_TEXT_INIT;
	uint64_t p, i, j, k, from;

	for (p = 0; p < row->n; p++)
		uns_text_add(&source, m->dense[row->part[p].tensor] + row->part[p].first_elem * es,
			     row->part[p].n_elems * es);
	if (row->by_default)
		uns_text_add(&out, source.p, source.len);
	for (p = 0; !row->by_default && p < row->order.n_planes; p++)
		for (i = 0; i < (l[0].n ? l[0].n : 1); i++)
			for (j = 0; j < (l[1].n ? l[1].n : 1); j++)
				for (k = 0; k < l[2].n; k++) {
					from = p * row->order.plane_elems + row->order.first_elem;
					from += i * l[0].step_elems + j * l[1].step_elems + k * l[2].step_elems;
					uns_text_add(&out, source.p + from * es, es);
				}
	return (uint8_t *)uns_text_take(&out, NULL);
}

static struct uns_named_tensor make_joined(struct made *m, const struct joined_row *row, enum uns_dtype out)
{
	struct uns_named_tensor part[MAX_PARTS], made;
	struct uns_slice *slice;
	struct uns_err err = { 0 };
	size_t i;

	for (i = 0; i < row->n; i++) {
		slice = UNS_NEW(&m->arena, struct uns_slice);
		*slice = (struct uns_slice){ .first_elem = row->part[i].first_elem,
					     .shape = { 1, { row->part[i].n_elems } } };
		part[i] = (struct uns_named_tensor){ "part", &m->cat->tensors[row->part[i].tensor], out, slice };
		if (!uns_cast_exists(part[i].tensor->dtype, out))
			part[i].out = part[i].tensor->dtype;
	}
	assert_int_equal(uns_joined_make(m->cat, "joined", part, row->n, row->by_default ? NULL : &row->order,
					 &row->shape, &m->arena, &made, &err),
			 0);
	assert_true(uns_shape_equal(uns_named_shape(&made), &row->shape));
	return made;
}

static struct file make_joined_file(struct made *m, enum uns_dtype out)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	struct file f;
	size_t i, n;

	uns_layout_literal(&b, "odd", 3);
	uns_text_str(&want, "odd");
	for (i = 0; i < sizeof(joined_rows) / sizeof(joined_rows[0]); i++) {
		const struct uns_named_tensor t = make_joined(m, &joined_rows[i], out);
		UNS_CLEANUP(uns_free_p) uint8_t *dense = joined_dense(m, &joined_rows[i]), *cast = NULL;

		n = (size_t)uns_shape_elems(&joined_rows[i].shape);
		cast = malloc(n * uns_dtype_size(t.out) + 1);
		uns_cast(t.tensor->dtype, dense, t.out, cast, n);
		uns_text_add(&want, cast, n * uns_dtype_size(t.out));
		uns_named_layout(&b, &t);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

/* Also where no plane fits into memory, and by many threads. */
static void reads_joined(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 4096, 0 };
	struct made m;
	struct file f;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
		for (k = 0; k < 2; k++) {
			start(&m);
			add_raw_tensors(&m);
			open_engine(&m,
				    (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
			f = make_joined_file(&m, k ? UNS_F32 : UNS_U8);
			check_windows(&m, &f, i ? 20 : 100);
			if (!i && !k)
				read_by_threads(&m, &f);
			free(f.want);
			finish(&m);
		}
}

static void what_lies_together_is_a_slice(void **state)
{
	struct made m;
	struct uns_named_tensor a, b;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	a = make_joined(&m, &joined_rows[1], UNS_F32);
	assert_ptr_equal(a.tensor, &m.cat->tensors[1]);
	assert_int_equal(a.slice->first_elem, 40);
	a = make_joined(&m, &joined_rows[2], UNS_F32);
	assert_ptr_equal(a.tensor, &m.cat->tensors[3]);
	assert_null(a.slice);
	/* the same elements are known again, others are not */
	a = make_joined(&m, &joined_rows[3], UNS_F32);
	b = make_joined(&m, &joined_rows[3], UNS_F32);
	assert_true(a.tensor != b.tensor && a.tensor->joined->id[0] == b.tensor->joined->id[0] &&
		    a.tensor->joined->id[1] == b.tensor->joined->id[1]);
	b = make_joined(&m, &joined_rows[4], UNS_F32);
	assert_true(a.tensor->joined->id[0] != b.tensor->joined->id[0] &&
		    a.tensor->joined->id[1] != b.tensor->joined->id[1]);
	finish(&m);
}

static void refuses_what_does_not_fit_together(void **state)
{
	const struct uns_joined_order beyond = { 1, 6, 1, { { 0 }, { 2, 3 }, { 3, 1 } } };
	const struct uns_joined_order fewer = { 1, 6, 0, { { 0 }, { 1, 3 }, { 3, 1 } } };
	const struct uns_shape shape = shape2(2, 3), more = shape2(4, 3);
	struct uns_named_tensor part[2], out;
	struct uns_err err[4] = { { 0 } };
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape), 2, 3);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape), 2, 3);
	open_engine(&m, (struct uns_engine_options){ 0 });
	part[0] = (struct uns_named_tensor){ "a", &m.cat->tensors[0], UNS_F32, NULL };
	part[1] = (struct uns_named_tensor){ "b", &m.cat->tensors[1], UNS_F32, NULL };
	assert_int_equal(uns_joined_make(m.cat, "x", part, 2, NULL, &more, &m.arena, &out, &err[0]), -EBADMSG);
	assert_string_equal(err[0].text, "a has dtype float32, and b has bfloat16");
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, NULL, &more, &m.arena, &out, &err[1]), -EBADMSG);
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, &beyond, &shape, &m.arena, &out, &err[2]), -EBADMSG);
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, &fewer, &shape, &m.arena, &out, &err[3]), -EBADMSG);
	assert_string_equal(err[3].text, "a has the shape [2, 3], which does not fit x");
	finish(&m);
}

/* Of a plane that was put in order earlier, too. */
static void a_joined_tensor_of_changed_files_is_stale(void **state)
{
	struct made m;
	struct file f;
	int fd;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
	f = make_joined_file(&m, UNS_U8);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	usleep(20000); /* time stamps have the kernel's tick */
	fd = open(full_path(&m, "shard-0.bin"), O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 0), 1);
	close(fd);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_joined),
		cmocka_unit_test(what_lies_together_is_a_slice),
		cmocka_unit_test(refuses_what_does_not_fit_together),
		cmocka_unit_test(a_joined_tensor_of_changed_files_is_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
