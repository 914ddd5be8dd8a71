/* A window of elements is computed in fp64. A term without a product is read as it lies, and added. A product is made
 * in tiles: TILE columns, of ROWS rows, by at most INNER products of each element at a time. What a tile needs of left
 * and right are rows of both, which lie together.
 *
 * A row's norm is that of the whole row: where a window has a part of a row only, the rest is computed, too.
 *
 * A right factor that no file has as rows is a tensor of blocks (model/block_tensor.h): it stays in the cache, in its
 * own dtype. */
#include "engine/sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cast.h"
#include "engine/elements.h"
#include "engine/fp64.h"
#include "engine/low_rank.h"
#include "engine/products.h"
#include "engine/widen.h"

/* gcc at -O2 does not vectorise loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

/* STEP: rows of a tile lie in different lines of a processor's cache. */
enum { WINDOW = 64 << 10, TILE = 256, STEP = TILE + UNS_PRODUCTS_COLUMNS, ROWS = 32, INNER = 256, AT_ONCE = 1024 };

struct work {
	const struct uns_catalog *cat;
	const struct uns_tensor *tensor;
	const struct uns_sum_reader *reader;
	double sum[WINDOW];
	double by[WINDOW]; /* of each place of the scale of which the window has elements: what they are multiplied by
			    */
	double wide[TILE * INNER]; /* elements as fp64, as they lie; of one term at a time */
	double left[ROWS * INNER], right[INNER * STEP], tile[ROWS * STEP];
	uint8_t raw[TILE * INNER * sizeof(double)];
	/* What `right` holds now. */
	const struct uns_term *held;
	uint64_t held_column, held_inner;
};

/* Sets `raw` to n elements of the factor from `first` on, in the dtype that they are taken as; TILE * INNER at most,
 * and as many in `spare`, which is written to. */
static int raw_read(struct work *w, const struct uns_factor *f, uint64_t first, size_t n, double *spare,
		    struct uns_err *err)
{
	const enum uns_dtype is = uns_tensor_with_bytes(w->cat, f->tensor)->dtype;
	const size_t size = uns_dtype_size(is);

	UNS_TRY(w->reader->read(w->reader->ctx, f->tensor, w->raw, (f->first + first) * size, n * size, err));
	if (f->as == is)
		return 0;
	uns_cast(is, w->raw, f->as, spare, n);
	memcpy(w->raw, spare, n * uns_dtype_size(f->as));
	return 0;
}

static int factor_read(struct work *w, const struct uns_factor *f, uint64_t first, size_t n, double *out,
		       struct uns_err *err)
{
	struct uns_widening widening;

	UNS_TRY(raw_read(w, f, first, n, out, err));
	uns_widening_init(&widening, f->as);
	uns_widen(&widening, w->raw, n, out);
	return 0;
}

/* Widens and adds so many at a time, which stay in a processor's first cache. */
static void add_raw(struct work *w, const struct uns_term *term, size_t n, double *sum)
{
	const size_t size = uns_dtype_size(term->left.as);
	struct uns_widening widening;
	size_t i, m;

	uns_widening_init(&widening, term->left.as);
	for (i = 0; i < n; i += m) {
		m = n - i < AT_ONCE ? n - i : AT_ONCE;
		uns_widen(&widening, w->raw + i * size, m, w->wide);
		uns_fp64_add(term->times, w->wide, sum + i, m);
	}
}

static int add_elements(struct work *w, const struct uns_term *term, uint64_t first, size_t n, struct uns_err *err)
{
	size_t done, m;

	for (done = 0; done < n; done += m) {
		m = (size_t)uns_u64_min(n - done, TILE * INNER);
		UNS_TRY(raw_read(w, &term->left, first + done, m, w->wide, err));
		add_raw(w, term, m, w->sum + done);
	}
	return 0;
}

/* Elements [k, k+n_inner) of rows [row, row+n) of a factor, as they lie. */
static int rows_read(struct work *w, const struct uns_factor *f, uint64_t inner, uint64_t row, size_t n, uint64_t k,
		     size_t n_inner, double *out, struct uns_err *err)
{
	size_t i;

	if (n_inner == inner)
		return factor_read(w, f, row * inner, n * n_inner, out, err);
	for (i = 0; i < n; i++)
		UNS_TRY(factor_read(w, f, (row + i) * inner + k, n_inner, out + i * n_inner, err));
	return 0;
}

/* Sets `right`: columns [column, column+n) of the product's second matrix, of all those of all batches. */
static int right_read(struct work *w, const struct uns_term *term, uint64_t column, size_t n, uint64_t k,
		      size_t n_inner, struct uns_err *err)
{
	size_t i, j;

	if (w->held == term && w->held_column == column && w->held_inner == k)
		return 0;
	w->held = NULL;
	UNS_TRY(rows_read(w, &term->right, term->inner, column, n, k, n_inner, w->wide, err));
	for (i = 0; i < n_inner; i++) {
		for (j = 0; j < n; j++)
			w->right[i * STEP + j] = w->wide[j * n_inner + i];
		for (; j % UNS_PRODUCTS_COLUMNS; j++)
			w->right[i * STEP + j] = 0;
	}
	w->held = term;
	w->held_column = column;
	w->held_inner = k;
	return 0;
}

static int tile_make(struct work *w, const struct uns_term *term, uint64_t row, size_t n_rows, uint64_t column,
		     size_t n_columns, struct uns_err *err)
{
	const size_t n_added = (n_columns + UNS_PRODUCTS_COLUMNS - 1) / UNS_PRODUCTS_COLUMNS * UNS_PRODUCTS_COLUMNS;
	const uint64_t before = term->batch ? row / term->batch * w->tensor->sum->columns : 0;
	uint64_t k;
	size_t n_inner;

	memset(w->tile, 0, sizeof(w->tile));
	for (k = 0; k < term->inner; k += n_inner) {
		n_inner = (size_t)uns_u64_min(term->inner - k, INNER);
		UNS_TRY(right_read(w, term, before + column, n_columns, k, n_inner, err));
		UNS_TRY(rows_read(w, &term->left, term->inner, row, n_rows, k, n_inner, w->left, err));
		uns_products_add(w->left, n_rows, n_inner, w->right, n_added, STEP, w->tile);
	}
	return 0;
}

/* Adds a tile to elements [first, first+n), as far as it has some of them. */
static void tile_add(struct work *w, double times, uint64_t columns, uint64_t row, size_t n_rows, uint64_t column,
		     size_t n_columns, uint64_t first, size_t n)
{
	uint64_t at, from, to;
	size_t i;

	for (i = 0; i < n_rows; i++) {
		at = (row + i) * columns + column;
		to = uns_u64_min(at + n_columns, first + n);
		for (from = uns_u64_max(at, first); from < to; from++)
			w->sum[from - first] += times * w->tile[i * STEP + (from - at)];
	}
}

/* Of the rows between the window's first and last the whole tile is wanted; of a window inside one row, less. */
static int add_product(struct work *w, const struct uns_term *term, uint64_t columns, uint64_t first, size_t n,
		       struct uns_err *err)
{
	const uint64_t row = first / columns, end = (first + n + columns - 1) / columns;
	const bool in_one = end - row == 1;
	const uint64_t begin = in_one ? first % columns : 0, last = in_one ? begin + n : columns;
	uint64_t i, column;
	size_t n_rows, n_columns;

	for (column = begin; column < last; column += n_columns) {
		n_columns = (size_t)uns_u64_min(last - column, TILE);
		for (i = row; i < end; i += n_rows) {
			n_rows = (size_t)uns_u64_min(end - i, ROWS);
			if (term->batch)
				n_rows = (size_t)uns_u64_min(n_rows, term->batch - i % term->batch);
			UNS_TRY(tile_make(w, term, i, n_rows, column, n_columns, err));
			tile_add(w, term->times, columns, i, n_rows, column, n_columns, first, n);
		}
	}
	return 0;
}

/* Sets the window's sum to what the terms add up to. */
static int terms_add(struct work *w, uint64_t first, size_t n, struct uns_err *err)
{
	const struct uns_sum *sum = w->tensor->sum;
	size_t i;

	for (i = 0; i < n; i++)
		w->sum[i] = -0.0; /* to which any number may be added and stays what it is */
	w->held = NULL;
	for (i = 0; i < sum->n; i++) {
		if (sum->term[i].right.tensor)
			UNS_TRY(add_product(w, &sum->term[i], sum->columns, first, n, err));
		else
			UNS_TRY(add_elements(w, &sum->term[i], first, n, err));
	}
	if (sum->divisor != 1)
		uns_fp64_divide(w->sum, sum->divisor, n);
	for (i = 0; sum->plus != 0 && i < n; i++)
		w->sum[i] += sum->plus;
	return 0;
}

/* Sets `by` to the norms of n rows from row `begin` on. */
static int rows_measure(struct work *w, uint64_t begin, size_t n, struct uns_err *err)
{
	const uint64_t columns = w->tensor->sum->scale.behind, all = n * columns;
	uint64_t done, column = 0;
	size_t i, m, row = 0;

	memset(w->by, 0, n * sizeof(*w->by));
	for (done = 0; done < all; done += m) {
		m = (size_t)uns_u64_min(all - done, WINDOW);
		UNS_TRY(terms_add(w, begin * columns + done, m, err));
		for (i = 0; i < m; i++) {
			w->by[row] += w->sum[i] * w->sum[i];
			if (++column < columns)
				continue;
			column = 0;
			row++;
		}
	}
	for (i = 0; i < n; i++)
		w->by[i] = sqrt(w->by[i]);
	return 0;
}

/* Sets `by` to what the scale has at places [begin, begin+n), which go round its elements. */
static int scale_read(struct work *w, uint64_t begin, size_t n, struct uns_err *err)
{
	const struct uns_scale *scale = &w->tensor->sum->scale;
	const uint64_t all = uns_shape_elems(&scale->by.tensor->shape), first = begin % all;
	const size_t once = (size_t)uns_u64_min(n, all), m = (size_t)uns_u64_min(once, all - first);
	size_t i;

	if (scale->normed)
		UNS_TRY(rows_measure(w, begin, n, err));
	UNS_TRY(factor_read(w, &scale->by, first, m, w->wide, err));
	if (m < once)
		UNS_TRY(factor_read(w, &scale->by, 0, once - m, w->wide + m, err));
	for (i = 0; i < n; i++)
		w->by[i] = scale->normed ? w->wide[i % once] / w->by[i] : w->wide[i % once];
	return 0;
}

static int window_make(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	struct work *w = ctx;
	const struct uns_scale *scale = &w->tensor->sum->scale;
	const uint64_t behind = scale->by.tensor ? scale->behind : 1, begin = first / behind;
	size_t i;

	if (scale->by.tensor)
		UNS_TRY(scale_read(w, begin, (size_t)((first + n - 1) / behind - begin + 1), err));
	UNS_TRY(terms_add(w, first, n, err));
	for (i = 0; scale->by.tensor && i < n; i++)
		w->sum[i] *= w->by[(first + i) / behind - begin];
	uns_fp64_round(w->sum, w->tensor->dtype, out, n);
	return 0;
}

int uns_sum_bytes(const struct uns_catalog *cat, const struct uns_tensor *tensor, const struct uns_sum_reader *reader,
		  uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct work *w = NULL;
	struct uns_elements all = { .make = window_make, .elem_bytes = uns_dtype_size(tensor->dtype), .most = WINDOW };

	if (uns_low_rank_is(cat, tensor))
		return uns_low_rank_bytes(cat, tensor, reader, dst, at, len, err);
	w = malloc(sizeof(*w));
	UNS_TRY_ALLOC(w, err);
	w->cat = cat;
	w->tensor = tensor;
	w->reader = reader;
	all.ctx = w;
	return uns_elements_read(&all, dst, len, at, err);
}
