/* megatron/space.c: flat ranges of parts as boxes of the parameter, each element compared with where it must be,
 * and what does not fit. Real files are compared in tests/e2e/test_megatron_optimizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/cleanup.h"
#include "megatron/space.h"

/* clang-format off: tables, a case a row */

#define NAME  "decoder.x.weight"
#define STATE "optimizer.state.exp_avg." NAME

enum { MAX_ELEMS = 512, MAX_RANGES = 4 };

struct row {
	const char *name, *key;
	struct uns_shape whole, saved;
	uint64_t ends[MAX_RANGES]; /* of the ranges that a part is cut into; 0 = there are no more */
	const char *why;    /* what the refusal says; NULL = it is restored */
	bool has_paths, unchanged;
};

static const struct row rows[] = {
	{ .name = "one part, whole", .key = STATE, .whole = { 1, { 16 } }, .saved = { 2, { 1, 16 } }, .ends = { 16 } },
	{ .name = "layers", .key = STATE, .whole = { 2, { 3, 8 } }, .saved = { 3, { 3, 1, 8 } }, .ends = { 3, 8 } },
	{ .name = "rows",
	  .key = STATE,
	  .whole = { 3, { 2, 6, 5 } },
	  .saved = { 4, { 2, 2, 1, 15 } },
	  .ends = { 4, 12, 15 } },
	{ .name = "columns",
	  .key = STATE,
	  .whole = { 3, { 2, 4, 6 } },
	  .saved = { 4, { 2, 1, 2, 12 } },
	  .ends = { 1, 2, 8, 12 } },
	{ .name = "experts and columns",
	  .key = "chained_1." STATE,
	  .whole = { 4, { 2, 4, 5, 6 } },
	  .saved = { 5, { 2, 4, 1, 3, 10 } },
	  .ends = { 3, 10 } },
	{ .name = "parts of three dimensions",
	  .key = STATE,
	  .whole = { 3, { 4, 6, 4 } },
	  .saved = { 4, { 2, 2, 1, 24 } },
	  .ends = { 7, 17, 24 } },
	{ .name = "not flat",
	  .key = STATE,
	  .whole = { 2, { 4, 4 } },
	  .saved = { 2, { 4, 4 } },
	  .ends = { 4 },
	  .unchanged = true },
	{ .name = "of no optimizer",
	  .key = "other." NAME,
	  .whole = { 1, { 4 } },
	  .saved = { 2, { 1, 4 } },
	  .ends = { 4 },
	  .unchanged = true },
	{ .name = "with paths",
	  .key = STATE,
	  .whole = { 1, { 4 } },
	  .saved = { 2, { 1, 4 } },
	  .ends = { 4 },
	  .has_paths = true,
	  .unchanged = true },
	{ .name = "too few elements",
	  .key = STATE,
	  .whole = { 2, { 4, 4 } },
	  .saved = { 3, { 2, 1, 7 } },
	  .ends = { 7 },
	  .why = "'" STATE "' has the shape [2, 1, 7], which is not made of equal parts of its parameter's, [4, 4]" },
	{ .name = "parts that are not equal",
	  .key = STATE,
	  .whole = { 1, { 5 } },
	  .saved = { 2, { 2, 3 } },
	  .ends = { 3 },
	  .why = "which is not made of equal parts" },
	{ .name = "no parts",
	  .key = STATE,
	  .whole = { 1, { 4 } },
	  .saved = { 2, { 0, 4 } },
	  .ends = { 4 },
	  .why = "which is not made of equal parts" },
};

/* The metadata of a row: the parameter, and its state with a chunk for each range of each part. */
struct made {
	struct uns_arena arena;
	struct uns_catalog cat; /* its arena alone */
	struct uns_dcp_entry entry[2];
	struct uns_dcp_metadata meta;
	struct uns_dcp_storage storage[MAX_ELEMS];
	struct uns_box box[MAX_ELEMS];
	struct uns_dcp_chunk chunk[MAX_ELEMS];
};

static void made_fini(struct made *m)
{
	uns_arena_fini(&m->arena);
	uns_arena_fini(&m->cat.arena);
}

static void set_entry(struct uns_dcp_entry *e, const char *key, const struct uns_shape *shape)
{
	*e = (struct uns_dcp_entry){ .key = key, .kind = UNS_DCP_TENSOR, .dtype = UNS_F32, .n_dims = shape->n };
	memcpy(e->dims, shape->dim, sizeof(e->dims));
}

/* Each item's file offset is the number of its first element in the saved tensor. */
static void add_ranges(struct made *m, const struct row *row, uint64_t part)
{
	struct uns_dcp_entry *e = &m->entry[1];
	const uint64_t flat = row->saved.dim[row->saved.n - 1];
	uint64_t first = 0;
	uint32_t d, r;

	for (r = 0; r < MAX_RANGES && row->ends[r]; first = row->ends[r++]) {
		struct uns_box *box = &m->box[e->n_chunks];
		struct uns_dcp_storage *s = &m->storage[e->n_chunks];
		uint64_t rest = part;

		box->n = row->saved.n;
		box->lo[box->n - 1] = first;
		box->len[box->n - 1] = row->ends[r] - first;
		for (d = box->n - 1; d-- > 0; rest /= row->saved.dim[d]) {
			box->lo[d] = rest % row->saved.dim[d];
			box->len[d] = 1;
		}
		*s = (struct uns_dcp_storage){ .path = "__0_0.distcp", .offset_bytes = part * flat + first };
		m->chunk[e->n_chunks++] = (struct uns_dcp_chunk){ .box = box, .storage = s };
	}
}

static void make(struct made *m, const struct row *row)
{
	uint64_t parts = 1, i;
	uint32_t d;

	set_entry(&m->entry[0], NAME, &row->whole);
	set_entry(&m->entry[1], row->key, &row->saved);
	m->entry[1].chunk = m->chunk;
	for (d = 0; d + 1 < row->saved.n; d++)
		parts *= row->saved.dim[d];
	for (i = 0; i < parts; i++)
		add_ranges(m, row, i);
	m->meta = (struct uns_dcp_metadata){ .entry = m->entry, .n_entries = 2, .has_paths = row->has_paths };
}

/* Where element `index` of the parameter is in the saved tensor, by Megatron's own rule. */
static uint64_t saved_at(const struct row *row, const uint64_t *index)
{
	uint64_t part = 0, within = 0;
	uint32_t d;

	for (d = 0; d < row->whole.n; d++) {
		const uint64_t len = row->whole.dim[d] / row->saved.dim[d];

		part = part * row->saved.dim[d] + index[d] / len;
		within = within * len + index[d] % len;
	}
	return part * row->saved.dim[row->whole.n] + within;
}

static uint64_t flat_at(const struct uns_shape *shape, const uint64_t *index)
{
	uint64_t at = 0;
	uint32_t d;

	for (d = 0; d < shape->n; d++)
		at = at * shape->dim[d] + index[d];
	return at;
}

/* Every element of the chunk comes from where it was saved; `seen` counts each. */
static void check_chunk(const struct row *row, const struct uns_dcp_chunk *c, unsigned *seen)
{
	uint64_t index[UNS_MAX_DIMS], n = uns_box_elems(c->box), i, rest;
	uint32_t d;

	assert_non_null(c->part);
	assert_true(uns_box_inside(c->box, &row->whole));
	assert_true(c->part->first_elem + n <= c->part->n_elems);
	for (i = 0; i < n; i++) {
		for (rest = i, d = c->box->n; d-- > 0; rest /= c->box->len[d])
			index[d] = c->box->lo[d] + rest % c->box->len[d];
		assert_int_equal(c->storage->offset_bytes + c->part->first_elem + i, saved_at(row, index));
		seen[flat_at(&row->whole, index)]++;
	}
}

static void check_restored(const struct row *row, const struct uns_dcp_entry *e)
{
	unsigned seen[MAX_ELEMS] = { 0 };
	size_t i;

	assert_int_equal(e->kind, UNS_DCP_TENSOR);
	assert_int_equal(e->n_dims, row->whole.n);
	assert_memory_equal(e->dims, row->whole.dim, row->whole.n * sizeof(*e->dims));
	for (i = 0; i < e->n_chunks; i++)
		check_chunk(row, &e->chunk[i], seen);
	for (i = 0; i < uns_shape_elems(&row->whole); i++)
		assert_int_equal(seen[i], 1);
}

static void restores(void **state)
{
	const struct row *row = rows, *end = rows + sizeof(rows) / sizeof(*rows);

	(void)state;
	for (; row < end; row++) {
		UNS_CLEANUP(made_fini) struct made m = { 0 };
		const struct uns_dcp_entry *e = &m.entry[1];
		struct uns_err err = { 0 };

		print_message("%s\n", row->name);
		make(&m, row);
		assert_int_equal(uns_megatron_space_restore(&m.meta, &m.arena, &m.cat, &err), 0);
		if (row->unchanged) {
			assert_ptr_equal(e->chunk, m.chunk);
			assert_int_equal(e->n_dims, row->saved.n);
		} else if (row->why) {
			assert_int_equal(e->kind, UNS_DCP_UNKNOWN);
			assert_int_equal(e->code, -EBADMSG);
			assert_non_null(strstr(e->why, row->why));
		} else {
			check_restored(row, e);
		}
	}
}

static void refuses_chunks_that_are_none(void **state)
{
	const struct row *row = &rows[2];
	UNS_CLEANUP(made_fini) struct made m = { 0 };
	UNS_CLEANUP(made_fini) struct made zipped = { 0 };
	const char *transform = "stream.zstd/1";

	(void)state;
	make(&m, row);
	m.box[0].len[1] = 2;
	assert_int_equal(uns_megatron_space_restore(&m.meta, &m.arena, &m.cat, NULL), 0);
	assert_int_equal(m.entry[1].kind, UNS_DCP_UNKNOWN);
	assert_non_null(strstr(m.entry[1].why, "has a chunk of several of its parameter's parts"));

	make(&zipped, row);
	zipped.storage[1].transform = &transform;
	zipped.storage[1].n_transforms = 1;
	assert_int_equal(uns_megatron_space_restore(&zipped.meta, &zipped.arena, &zipped.cat, NULL), 0);
	assert_int_equal(zipped.entry[1].code, -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(restores),
		cmocka_unit_test(refuses_chunks_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
