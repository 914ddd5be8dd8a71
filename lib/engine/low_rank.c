/* The sum is defined in fp64 (model/sum_tensor.h). Almost always fp32 decides how it is rounded to 16 bits: the sum is
 * computed in fp32, with a bound on how far it is from the one in fp64, and if both ends of that interval are rounded
 * to the same number, so is all between them. The few other elements are computed in fp64.
 *
 * The bound. With u = 2^-24, a sum of n products in fp32, of which no number goes through more than m additions and
 * one multiplication, is at most (m + 1) * u / (1 - (m + 1) * u) * S from the exact one, where S is the sum of the
 * products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). S is at most the product
 * of the norms of the row and the column. Products are added in parts of PART, so m is PART and the number of parts.
 * `times` in fp32, and the multiplication by it, add 2 * u * S; the addition of the matrix's element and those of the
 * bound itself, 2 * u of the result; numbers below the normal ones, 2^-149 for each operation. What fp64 is from the
 * exact sum is far less than what these are rounded up by. */
#include "engine/low_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cast.h"
#include "engine/elements.h"
#include "engine/products.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

/* Columns are multiplied by so many at once. */
enum { ACROSS = 8, COLUMNS = 2 * ACROSS, DOWN = 4, PART = 16 };
/* STEP: rows of a tile lie in different lines of a processor's cache. */
enum { WINDOW_BYTES = 512 << 10, TILE = 256, STEP = TILE + COLUMNS, ROWS = 32, INNER = 256 };

#define U             0x1p-24
#define MOST_NORM     0x1p50 /* below it nothing overflows in fp32 */
#define MOST_TIMES    0x1p20
#define OF_THE_RESULT (3 * U)

typedef float numbers __attribute__((vector_size(ACROSS * sizeof(float)), aligned(4), may_alias));

struct work {
	const struct uns_catalog *cat;
	const struct uns_tensor *tensor;
	const struct uns_sum_reader *reader;
	float times, least; /* least: the part of the bound that does not depend on the numbers */
	float left[ROWS * INNER], right[INNER * STEP], tile[ROWS * STEP];
	float of_row[ROWS], of_column[STEP]; /* the bound on times * tile is one times the other */
	float value[TILE * INNER]; /* as they lie */
	uint8_t raw[TILE * INNER * sizeof(float)];
	uint8_t base[WINDOW_BYTES]; /* the matrix's elements of a window, in its dtype */
};

/* A tile of which the right columns and left rows have been read. */
struct place {
	uint64_t row, column; /* of the tensor */
	size_t n_rows, n_columns;
};

static bool fits_fp32(const struct uns_catalog *cat, const struct uns_factor *f)
{
	const enum uns_dtype is = uns_tensor_with_bytes(cat, f->tensor)->dtype;

	return f->as == is && (is == UNS_BF16 || is == UNS_F16 || is == UNS_F32);
}

bool uns_low_rank_is(const struct uns_catalog *cat, const struct uns_tensor *tensor)
{
	const struct uns_sum *s = tensor->sum;
	const struct uns_term *product = &s->term[1];

	return (tensor->dtype == UNS_BF16 || tensor->dtype == UNS_F16) && s->n == 2 && !s->term[0].right.tensor &&
	       s->term[0].times == 1 && product->right.tensor && product->inner <= INNER &&
	       fabs(product->times) < MOST_TIMES && s->divisor == 1 && s->plus == 0 && !s->scale.by.tensor &&
	       fits_fp32(cat, &s->term[0].left) && fits_fp32(cat, &product->left) && fits_fp32(cat, &product->right);
}

/* -- arithmetic, once for any processor and once for those with AVX2 -- */

/* n_rows, DOWN at most and known to the compiler: what is added up stays in registers. */
static inline __attribute__((always_inline)) void multiply_rows(const float *left, size_t n_rows, size_t inner,
								const float *right, size_t n_columns, float *tile)
{
	numbers a[DOWN], b[DOWN];
	size_t i, j, k, part, end;

	for (j = 0; j < n_columns; j += COLUMNS) {
		for (part = 0; part < inner; part = end) {
			end = inner - part < PART ? inner : part + PART;
			for (i = 0; i < n_rows; i++)
				a[i] = b[i] = (numbers){ 0 };
			for (k = part; k < end; k++) {
				const numbers x = *(const numbers *)(right + k * STEP + j);
				const numbers y = *(const numbers *)(right + k * STEP + j + ACROSS);

				for (i = 0; i < n_rows; i++) {
					a[i] += left[i * inner + k] * x;
					b[i] += left[i * inner + k] * y;
				}
			}
			for (i = 0; i < n_rows; i++) {
				if (part) {
					a[i] += *(const numbers *)(tile + i * STEP + j);
					b[i] += *(const numbers *)(tile + i * STEP + j + ACROSS);
				}
				*(numbers *)(tile + i * STEP + j) = a[i];
				*(numbers *)(tile + i * STEP + j + ACROSS) = b[i];
			}
		}
	}
}

static inline __attribute__((always_inline)) void multiply_all(const float *left, size_t n_rows, size_t inner,
							       const float *right, size_t n_columns, float *tile)
{
	size_t i;

	for (i = 0; i + DOWN <= n_rows; i += DOWN)
		multiply_rows(left + i * inner, DOWN, inner, right, n_columns, tile + i * STEP);
	for (; i < n_rows; i++)
		multiply_rows(left + i * inner, 1, inner, right, n_columns, tile + i * STEP);
}

/* The ends of the interval in which the sum is. If there is none, two numbers that are rounded to different ones. */
static inline __attribute__((always_inline)) void bound_all(const struct work *w, const float *base, size_t row,
							    size_t column, size_t n, float *low, float *high)
{
	const float *tile = w->tile + row * STEP + column, *of_column = w->of_column + column;
	const float times = w->times, least = w->least, of_row = w->of_row[row];
	float v, e;
	size_t i;

	for (i = 0; i < n; i++) {
		v = base[i] + times * tile[i];
		e = of_row * of_column[i] + fabsf(v) * (float)OF_THE_RESULT + least;
		low[i] = e < INFINITY ? v - e : 0;
		high[i] = e < INFINITY ? v + e : 1;
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void multiply_by_avx2(const float *left, size_t n_rows, size_t inner,
								 const float *right, size_t n_columns, float *tile)
{
	multiply_all(left, n_rows, inner, right, n_columns, tile);
}

__attribute__((target("avx2,fma"))) static void bound_by_avx2(const struct work *w, const float *base, size_t row,
							      size_t column, size_t n, float *low, float *high)
{
	bound_all(w, base, row, column, n, low, high);
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static void multiply(const float *left, size_t n_rows, size_t inner, const float *right, size_t n_columns, float *tile)
{
#if defined(__x86_64__)
	if (has_avx2()) {
		multiply_by_avx2(left, n_rows, inner, right, n_columns, tile);
		return;
	}
#endif
	multiply_all(left, n_rows, inner, right, n_columns, tile);
}

static void bound(const struct work *w, const float *base, size_t row, size_t column, size_t n, float *low, float *high)
{
#if defined(__x86_64__)
	if (has_avx2()) {
		bound_by_avx2(w, base, row, column, n, low, high);
		return;
	}
#endif
	bound_all(w, base, row, column, n, low, high);
}

/* -- factors -- */

static int rows_read(struct work *w, const struct uns_factor *f, uint64_t inner, uint64_t row, size_t n, float *out,
		     struct uns_err *err)
{
	const enum uns_dtype is = f->as;
	const size_t size = uns_dtype_size(is), all = n * (size_t)inner;

	UNS_TRY(w->reader->read(w->reader->ctx, f->tensor, w->raw, (f->first + row * inner) * size, all * size, err));
	uns_cast(is, w->raw, UNS_F32, out, all);
	return 0;
}

/* Of a norm, for the bound: a product with infinity is infinite. */
static float bounding(double square)
{
	const double norm = sqrt(square);

	return norm < MOST_NORM ? (float)(norm * 1.000001) + 0x1p-100f : INFINITY;
}

/* Sets `right`: columns [column, column+n) of the product's second matrix, of all those of all batches. */
static int right_read(struct work *w, const struct uns_term *term, uint64_t column, size_t n, struct uns_err *err)
{
	const size_t inner = (size_t)term->inner;
	double square[TILE] = { 0 };
	size_t i, j;

	UNS_TRY(rows_read(w, &term->right, term->inner, column, n, w->value, err));
	for (j = 0; j < n; j++)
		for (i = 0; i < inner; i++)
			w->right[i * STEP + j] = w->value[j * inner + i];
	for (i = 0; i < inner; i++) {
		for (j = n; j % COLUMNS; j++)
			w->right[i * STEP + j] = 0;
		for (j = 0; j < n; j++)
			square[j] += (double)w->right[i * STEP + j] * w->right[i * STEP + j];
	}
	for (j = 0; j < n; j++)
		w->of_column[j] = bounding(square[j]);
	return 0;
}

static int left_read(struct work *w, const struct uns_term *term, uint64_t row, size_t n, struct uns_err *err)
{
	const size_t inner = (size_t)term->inner, steps = PART + (inner + PART - 1) / PART + 4;
	const float *left = w->left;
	double square;
	size_t i, k;

	UNS_TRY(rows_read(w, &term->left, term->inner, row, n, w->left, err));
	for (i = 0; i < n; i++, left += inner) {
		square = 0;
		for (k = 0; k < inner; k++)
			square += (double)left[k] * left[k];
		w->of_row[i] = bounding(square) * (float)(1.05 * (double)steps * U * (fabs(term->times) + 0x1p-20));
	}
	return 0;
}

/* -- elements -- */

static void element_make(const struct work *w, double base, size_t row, size_t column, uint8_t *out)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const size_t inner = (size_t)term->inner;
	double sum = 0, product;
	size_t k;

	for (k = 0; k < inner; k++) {
		product = (double)w->left[row * inner + k] * w->right[k * STEP + column]; /* exact */
		sum += product;
	}
	product = term->times * sum;
	sum = base + product;
	uns_products_round(&sum, w->tensor->dtype, out, 1);
}

/* n elements of a tile's row. */
static void row_make(const struct work *w, const uint8_t *raw, size_t row, size_t column, size_t n, uint8_t *out)
{
	float base[TILE], low[TILE], high[TILE];
	uint16_t down[TILE], up[TILE];
	size_t i;

	uns_cast(w->tensor->sum->term[0].left.as, raw, UNS_F32, base, n);
	bound(w, base, row, column, n, low, high);
	uns_cast(UNS_F32, low, w->tensor->dtype, down, n);
	uns_cast(UNS_F32, high, w->tensor->dtype, up, n);
	memcpy(out, down, n * sizeof(*down));
	if (memcmp(down, up, n * sizeof(*down)) == 0)
		return;
	for (i = 0; i < n; i++)
		if (down[i] != up[i])
			element_make(w, base[i], row, column + i, out + i * sizeof(*down));
}

/* Elements [first, first+n), as far as the tile has some of them. */
static void tile_make(struct work *w, const struct place *at, uint64_t first, size_t n, uint8_t *out)
{
	const struct uns_sum *sum = w->tensor->sum;
	const size_t size = uns_dtype_size(sum->term[0].left.as);
	uint64_t begin, from, to;
	size_t i;

	multiply(w->left, at->n_rows, (size_t)sum->term[1].inner, w->right,
		 (at->n_columns + COLUMNS - 1) / COLUMNS * COLUMNS, w->tile);
	for (i = 0; i < at->n_rows; i++) {
		begin = (at->row + i) * sum->columns + at->column;
		from = uns_u64_max(begin, first);
		to = uns_u64_min(begin + at->n_columns, first + n);
		if (from < to)
			row_make(w, w->base + (from - first) * size, i, (size_t)(from - begin), (size_t)(to - from),
				 out + (from - first) * sizeof(uint16_t));
	}
}

/* Rows [row, end) of one batch, in columns of a tile. */
static int columns_make(struct work *w, struct place at, uint64_t end, uint64_t first, size_t n, uint8_t *out,
			struct uns_err *err)
{
	const struct uns_sum *sum = w->tensor->sum;
	const struct uns_term *term = &sum->term[1];
	const uint64_t before = term->batch ? at.row / term->batch * sum->columns : 0;

	UNS_TRY(right_read(w, term, before + at.column, at.n_columns, err));
	for (; at.row < end; at.row += at.n_rows) {
		at.n_rows = (size_t)uns_u64_min(end - at.row, ROWS);
		UNS_TRY(left_read(w, term, at.row, at.n_rows, err));
		tile_make(w, &at, first, n, out);
	}
	return 0;
}

/* Of a window inside one row, only its columns are wanted; of another, all. */
static int window_make(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	struct work *w = ctx;
	const struct uns_factor *base = &w->tensor->sum->term[0].left;
	const uint64_t columns = w->tensor->sum->columns, batch = w->tensor->sum->term[1].batch;
	const uint64_t end = (first + n + columns - 1) / columns, size = uns_dtype_size(base->as);
	const bool in_one = end - first / columns == 1;
	const uint64_t begin = in_one ? first % columns : 0, last = in_one ? begin + n : columns;
	struct place at;
	uint64_t stop;

	UNS_TRY(w->reader->read(w->reader->ctx, base->tensor, w->base, (base->first + first) * size, n * size, err));
	for (at.row = first / columns; at.row < end; at.row = stop) {
		stop = batch ? uns_u64_min(end, (at.row / batch + 1) * batch) : end;
		for (at.column = begin; at.column < last; at.column += at.n_columns) {
			at.n_columns = (size_t)uns_u64_min(last - at.column, TILE);
			UNS_TRY(columns_make(w, at, stop, first, n, out, err));
		}
	}
	return 0;
}

int uns_low_rank_bytes(const struct uns_catalog *cat, const struct uns_tensor *tensor,
		       const struct uns_sum_reader *reader, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	const struct uns_term *product = &tensor->sum->term[1];
	UNS_CLEANUP(uns_free_p) struct work *w = malloc(sizeof(*w));
	const struct uns_elements all = { .make = window_make,
					  .ctx = w,
					  .elem_bytes = uns_dtype_size(tensor->dtype),
					  .most = WINDOW_BYTES / uns_dtype_size(tensor->sum->term[0].left.as) };

	UNS_TRY_ALLOC(w, err);
	w->cat = cat;
	w->tensor = tensor;
	w->reader = reader;
	w->times = (float)product->times;
	w->least = (float)((fabs(product->times) + 1) * ((double)product->inner + 16) * 0x1p-149);
	return uns_elements_read(&all, dst, len, at, err);
}
