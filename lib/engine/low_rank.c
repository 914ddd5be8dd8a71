/* The sum is defined in fp64 (model/sum_tensor.h). Almost always fp32 decides how it is rounded to 16 bits: the sum is
 * computed in fp32, with a bound on how far it is from the one in fp64, and if both ends of that interval are rounded
 * to the same number, so is all between them. The few other elements are computed in fp64.
 *
 * The bound. With u = 2^-24, a sum of n products in fp32, of which no number goes through more than m additions and
 * one multiplication, is at most (m + 1) * u / (1 - (m + 1) * u) * S from the exact one, where S is the sum of the
 * products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). S is at most the product
 * of the norms of the row and the column. m is uns_panels_additions. `times` in fp32, and the multiplication by it, add
 * 2 * u * S; the addition of the matrix's element and those of the bound itself, 2 * u of the result; numbers below the
 * normal ones, 2^-149 for each operation. What fp64 is from the exact sum is far less than what these are rounded up
 * by. */
#include "engine/low_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cast.h"
#include "engine/elements.h"
#include "engine/panels.h"
#include "engine/products.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { WINDOW_BYTES = 1 << 20, TILE = 256, ROWS = 48, INNER = 256 };

#define U             0x1p-24
#define MOST_NORM     0x1p50 /* below it nothing overflows in fp32 */
#define MOST_TIMES    0x1p20
#define OF_THE_RESULT (3 * U)

struct work {
	const struct uns_catalog *cat;
	const struct uns_tensor *tensor;
	const struct uns_sum_reader *reader;
	float times, least; /* least: the part of the bound that does not depend on the numbers */
	float left[ROWS * INNER], right[TILE * INNER], tile[ROWS * TILE]; /* right: in panels */
	float of_row[ROWS], of_column[TILE]; /* the bound on times * tile is one times the other */
	float value[TILE * INNER]; /* of right, as they lie: a column behind the other */
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

/* The ends of the interval in which the sums of a tile's row are. Where there is none, two numbers that are rounded to
 * different ones. */
struct ends {
	float low[TILE], high[TILE];
};

/* Rounded to bf16; no NaN is among them. */
static inline __attribute__((always_inline)) void ends_to_bf16(const float *ends, size_t n, uint16_t *out)
{
	uint32_t bits;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&bits, &ends[i], sizeof(bits));
		out[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
	}
}

/* down, up: both ends as bf16; NULL = they are wanted as they are. */
static inline __attribute__((always_inline)) void bound_all(const struct work *w, const float *base, size_t row,
							    size_t column, size_t n, struct ends *out, uint16_t *down,
							    uint16_t *up)
{
	const float *tile = w->tile + row * TILE + column, *of_column = w->of_column + column;
	const float times = w->times, least = w->least, of_row = w->of_row[row];
	float v, e;
	size_t i;

	for (i = 0; i < n; i++) {
		v = base[i] + times * tile[i];
		e = of_row * of_column[i] + fabsf(v) * (float)OF_THE_RESULT + least;
		out->low[i] = e < INFINITY ? v - e : 0;
		out->high[i] = e < INFINITY ? v + e : 1;
	}
	if (!down)
		return;
	ends_to_bf16(out->low, n, down);
	ends_to_bf16(out->high, n, up);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void bound_by_avx2(const struct work *w, const float *base, size_t row,
							      size_t column, size_t n, struct ends *out, uint16_t *down,
							      uint16_t *up)
{
	bound_all(w, base, row, column, n, out, down, up);
}
#endif

static void bound(const struct work *w, const float *base, size_t row, size_t column, size_t n, struct ends *out,
		  uint16_t *down, uint16_t *up)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
		bound_by_avx2(w, base, row, column, n, out, down, up);
		return;
	}
#endif
	bound_all(w, base, row, column, n, out, down, up);
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

/* Of n columns, the first UNS_PANEL at most. */
static void panel_make(const float *value, size_t n, size_t inner, float *panel)
{
	size_t i, j;

	if (n < UNS_PANEL)
		memset(panel, 0, UNS_PANEL * inner * sizeof(*panel));
	for (j = 0; n < UNS_PANEL && j < n; j++)
		for (i = 0; i < inner; i++)
			panel[i * UNS_PANEL + j] = value[j * inner + i];
	for (i = 0; n >= UNS_PANEL && i < inner; i++)
		for (j = 0; j < UNS_PANEL; j++)
			panel[i * UNS_PANEL + j] = value[j * inner + i];
}

/* Sets `right`: columns [column, column+n) of the product's second matrix, of all those of all batches. */
static int right_read(struct work *w, const struct uns_term *term, uint64_t column, size_t n, struct uns_err *err)
{
	const size_t inner = (size_t)term->inner;
	size_t j;

	UNS_TRY(rows_read(w, &term->right, term->inner, column, n, w->value, err));
	for (j = 0; j < n; j++)
		w->of_column[j] = bounding(uns_panels_dot(w->value + j * inner, w->value + j * inner, inner));
	for (j = 0; j < n; j += UNS_PANEL)
		panel_make(w->value + j * inner, n - j, inner, w->right + j * inner);
	return 0;
}

static int left_read(struct work *w, const struct uns_term *term, uint64_t row, size_t n, struct uns_err *err)
{
	const size_t inner = (size_t)term->inner, steps = uns_panels_additions(inner) + 4;
	const float *left = w->left;
	size_t i;

	UNS_TRY(rows_read(w, &term->left, term->inner, row, n, w->left, err));
	for (i = 0; i < n; i++, left += inner) {
		w->of_row[i] = bounding(uns_panels_dot(left, left, inner)) *
			       (float)(1.05 * (double)steps * U * (fabs(term->times) + 0x1p-20));
	}
	return 0;
}

/* -- elements -- */

/* In the order in which engine/sum.c adds. */
static double sum_in_order(const float *left, const float *right, size_t n)
{
	double sum = 0, product;
	size_t k;

	for (k = 0; k < n; k++) {
		product = (double)left[k] * right[k]; /* exact */
		sum += product;
	}
	return sum;
}

/* An element that fp32 does not decide. Products are exact in fp64, and may be added in any order, if that decides: by
 * the same bound with u = 2^-53, twice, for the other order's error. It is less than 2^-24 of that of fp32. */
static void element_make(const struct work *w, double base, size_t row, size_t column, uint8_t *out)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const enum uns_dtype to = w->tensor->dtype;
	const size_t inner = (size_t)term->inner;
	const float *left = w->left + row * inner, *right = w->value + column * inner;
	double product = term->times * uns_panels_dot(left, right, inner), ends[2];
	const double e = (double)w->of_row[row] * w->of_column[column] * 0x1p-24 +
			 (fabs(base) + fabs(product)) * 0x1p-50 + w->least;
	uint16_t code[2];

	ends[0] = base + product - e;
	ends[1] = base + product + e;
	uns_products_round(ends, to, (uint8_t *)code, 2);
	if (!(e < INFINITY) || code[0] != code[1]) {
		product = term->times * sum_in_order(left, right, inner);
		ends[0] = base + product;
		uns_products_round(ends, to, (uint8_t *)code, 1);
	}
	memcpy(out, code, sizeof(*code));
}

/* Those of the n elements for which both ends of the interval are not rounded to the same number. */
static void undecided_make(const struct work *w, const float *base, size_t row, size_t column, const uint16_t *down,
			   const uint16_t *up, size_t n, uint8_t *out)
{
	enum { AT_ONCE = 8 };
	size_t first, i;

	for (first = 0; first < n; first += AT_ONCE) {
		if (n - first >= AT_ONCE && memcmp(down + first, up + first, AT_ONCE * sizeof(*down)) == 0)
			continue;
		for (i = first; i < n && i < first + AT_ONCE; i++)
			if (down[i] != up[i])
				element_make(w, base[i], row, column + i, out + i * sizeof(*down));
	}
}

/* n elements of a tile's row. */
static void row_make(const struct work *w, const uint8_t *raw, size_t row, size_t column, size_t n, uint8_t *out)
{
	float base[TILE];
	uint16_t down[TILE], up[TILE];
	struct ends ends;

	uns_cast(w->tensor->sum->term[0].left.as, raw, UNS_F32, base, n);
	if (w->tensor->dtype == UNS_BF16) {
		bound(w, base, row, column, n, &ends, down, up);
	} else {
		bound(w, base, row, column, n, &ends, NULL, NULL);
		uns_cast(UNS_F32, ends.low, w->tensor->dtype, down, n);
		uns_cast(UNS_F32, ends.high, w->tensor->dtype, up, n);
	}
	memcpy(out, down, n * sizeof(*down));
	if (memcmp(down, up, n * sizeof(*down)) != 0)
		undecided_make(w, base, row, column, down, up, n, out);
}

/* Elements [first, first+n), as far as the tile has some of them. */
static void tile_make(struct work *w, const struct place *at, uint64_t first, size_t n, uint8_t *out)
{
	const struct uns_sum *sum = w->tensor->sum;
	const size_t size = uns_dtype_size(sum->term[0].left.as), inner = (size_t)sum->term[1].inner;
	uint64_t begin, from, to;
	size_t i;

	for (i = 0; i < at->n_columns; i += UNS_PANEL)
		uns_panels_multiply(w->left, at->n_rows, inner, w->right + i * inner, w->tile + i, TILE);
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
