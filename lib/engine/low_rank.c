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
 * by.
 *
 * Where bf16 is multiplied as it is, results below the normal ones count as zero: 2^-126 for each operation. So do
 * numbers, which is 2^-126 * sqrt(n) times the sum of the norms. What is added to each norm is more than that. */
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
#include "engine/right_factor.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

/* LEFT_WORDS: of rows that are read at once; ROWS of them are multiplied at a time. */
enum { WINDOW_BYTES = 1 << 20, TILE = UNS_RIGHT_COLUMNS, ROWS = 48, LEFT_WORDS = 64 << 10, LEFT_ROWS = 4 << 10 };
_Static_assert(LEFT_WORDS >= UNS_RIGHT_COLUMNS * UNS_RIGHT_INNER, "rows are read by uns_rows_read");

#define U             0x1p-24
#define MOST_TIMES    0x1p20
#define OF_THE_RESULT (3 * U)

struct work {
	const struct uns_catalog *cat;
	const struct uns_tensor *tensor;
	const struct uns_sum_reader *reader;
	enum uns_panels_of of;
	size_t words; /* of each row and column */
	float times, least; /* least: the part of the bound that does not depend on the numbers */
	uns_word left[LEFT_WORDS];
	float of_row[LEFT_ROWS]; /* the bound on times * tile is this times the norm of the column */
	struct uns_right right;
	float tile[ROWS * TILE];
	uint8_t base[WINDOW_BYTES]; /* the matrix's elements of a window, in its dtype */
};

/* What is made at a time: rows [row, row+n_rows) of the tensor, of which `left` has the first, in n_columns columns. */
struct place {
	uint64_t row, column;
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
	       s->term[0].times == 1 && product->right.tensor && product->inner <= UNS_RIGHT_INNER &&
	       fabs(product->times) < MOST_TIMES && s->divisor == 1 && s->plus == 0 && !s->scale.by.tensor &&
	       fits_fp32(cat, &s->term[0].left) && fits_fp32(cat, &product->left) && fits_fp32(cat, &product->right);
}

/* -- arithmetic, once for any processor, once for those with AVX2 and once for those with AVX-512 -- */

#define INLINE static inline __attribute__((always_inline))

/* The ends of the interval in which the sums of a tile's row are. Where there is none, two numbers that are rounded to
 * different ones. */
struct ends {
	float low[TILE], high[TILE];
};

/* Rounded to bf16; no NaN. */
INLINE uint16_t bf16_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* The bounds of n elements of a tile's row; e: of times * tile. */
struct row {
	const float *tile, *norm; /* norm: of the columns */
	float times, of_row, least;
};

INLINE void end_make(const struct row *r, size_t i, float base, float *low, float *high)
{
	const float v = base + r->times * r->tile[i];
	const float e = r->of_row * r->norm[i] + fabsf(v) * (float)OF_THE_RESULT + r->least;

	*low = e < INFINITY ? v - e : 0;
	*high = e < INFINITY ? v + e : 1;
}

INLINE void ends_all(const struct row *row, const float *base, size_t n, struct ends *out)
{
	const struct row r = *row;
	size_t i;

	for (i = 0; i < n; i++)
		end_make(&r, i, base[i], &out->low[i], &out->high[i]);
}

/* Of a base of bf16, both ends rounded to bf16. */
INLINE void bf16_all(const struct row *row, const uint8_t *base, size_t n, uint16_t *down, uint16_t *up)
{
	const struct row r = *row;
	float low, high, x;
	uint16_t code;
	uint32_t bits;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&code, base + i * sizeof(code), sizeof(code));
		bits = (uint32_t)code << 16;
		memcpy(&x, &bits, sizeof(x));
		end_make(&r, i, x, &low, &high);
		down[i] = bf16_of(low);
		up[i] = bf16_of(high);
	}
}

#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

AVX2 static void ends_by_avx2(const struct row *row, const float *base, size_t n, struct ends *out)
{
	ends_all(row, base, n, out);
}

AVX2 static void bf16_by_avx2(const struct row *row, const uint8_t *base, size_t n, uint16_t *down, uint16_t *up)
{
	bf16_all(row, base, n, down, up);
}

AVX512 static void bf16_by_avx512(const struct row *row, const uint8_t *base, size_t n, uint16_t *down, uint16_t *up)
{
	bf16_all(row, base, n, down, up);
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

static void ends_make(const struct row *row, const float *base, size_t n, struct ends *out)
{
#if defined(__x86_64__)
	if (has_avx2()) {
		ends_by_avx2(row, base, n, out);
		return;
	}
#endif
	ends_all(row, base, n, out);
}

static void bf16_make(const struct row *row, const uint8_t *base, size_t n, uint16_t *down, uint16_t *up)
{
#if defined(__x86_64__)
	if (has_avx512()) {
		bf16_by_avx512(row, base, n, down, up);
		return;
	}
	if (has_avx2()) {
		bf16_by_avx2(row, base, n, down, up);
		return;
	}
#endif
	bf16_all(row, base, n, down, up);
}

/* -- the left factor -- */

static int left_read(struct work *w, uint64_t row, size_t n, struct uns_err *err)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const size_t inner = (size_t)term->inner, steps = uns_panels_additions(w->of, inner) + 4;
	const float of_norm = (float)(1.05 * (double)steps * U * (fabs(term->times) + 0x1p-20));
	struct uns_rows *rows = &w->right.rows;
	size_t done, i, m;

	for (done = 0; done < n; done += m) {
		m = (size_t)uns_u64_min(n - done, UNS_RIGHT_COLUMNS);
		UNS_TRY(uns_rows_read(w->reader, &term->left, w->of, inner, row + done, m, rows, err));
		memcpy(w->left + done * w->words, rows->word, m * w->words * sizeof(*w->left));
		for (i = 0; i < m; i++)
			w->of_row[done + i] = uns_row_norm(rows->value + i * inner, inner) * of_norm;
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

/* Elements of a row that fp32 does not decide, and what is known of each. */
struct undecided {
	const float *left; /* the row of the left matrix */
	size_t n, at[TILE], column[TILE]; /* at: of the row that is made; column: of the tile */
	double base[TILE];
};

/* The i-th, by the sum in order. */
static void in_order_make(const struct work *w, const struct undecided *u, size_t i, const float *right, uint16_t *out)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const double sum = u->base[i] + term->times * sum_in_order(u->left, right, (size_t)term->inner);

	uns_products_round(&sum, w->tensor->dtype, (uint8_t *)out, 1);
}

/* Products are exact in fp64, and may be added in any order, if that decides: by the same bound with u = 2^-53, twice,
 * for the other order's error. It is less than 2^-24 of that of fp32. */
static void undecided_make(const struct work *w, const struct undecided *u, float of_row, uint8_t *out)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const size_t inner = (size_t)term->inner;
	float right[UNS_RIGHT_INNER];
	double product, e, low[TILE], high[TILE];
	uint16_t down[TILE], up[TILE];
	size_t i;

	for (i = 0; i < u->n; i++) {
		uns_panels_column(w->of, w->right.panel, w->words, u->column[i], right);
		product = term->times * uns_panels_dot(u->left, right, inner);
		e = (double)of_row * w->right.norm[u->column[i]] * 0x1p-24 +
		    (fabs(u->base[i]) + fabs(product)) * 0x1p-50 + w->least;
		low[i] = e < INFINITY ? u->base[i] + product - e : 0;
		high[i] = e < INFINITY ? u->base[i] + product + e : 1;
	}
	uns_products_round(low, w->tensor->dtype, (uint8_t *)down, u->n);
	uns_products_round(high, w->tensor->dtype, (uint8_t *)up, u->n);
	for (i = 0; i < u->n; i++) {
		if (down[i] != up[i]) {
			uns_panels_column(w->of, w->right.panel, w->words, u->column[i], right);
			in_order_make(w, u, i, right, &down[i]);
		}
		memcpy(out + u->at[i] * sizeof(*down), &down[i], sizeof(*down));
	}
}

/* Those of which both ends of the interval are not rounded to the same number. */
static void undecided_find(const uint16_t *down, const uint16_t *up, size_t n, struct undecided *out)
{
	enum { AT_ONCE = 16 };
	size_t first, i;

	out->n = 0;
	for (first = 0; first < n; first += AT_ONCE) {
		if (n - first >= AT_ONCE && memcmp(down + first, up + first, AT_ONCE * sizeof(*down)) == 0)
			continue;
		for (i = first; i < n && i < first + AT_ONCE; i++)
			if (down[i] != up[i])
				out->at[out->n++] = i;
	}
}

/* n elements of row `row` of `left`, from column `column` of the tile on. */
static void row_make(const struct work *w, const uint8_t *raw, const float *tile, size_t row, size_t column, size_t n,
		     uint8_t *out)
{
	const struct row r = { tile + column, w->right.norm + column, w->times, w->of_row[row], w->least };
	const enum uns_dtype is = w->tensor->sum->term[0].left.as, to = w->tensor->dtype;
	float base[TILE], left[UNS_RIGHT_INNER];
	uint16_t down[TILE], up[TILE];
	struct undecided u;
	struct ends ends;
	size_t i;

	if (is == UNS_BF16 && to == UNS_BF16) {
		bf16_make(&r, raw, n, down, up);
	} else {
		uns_cast(is, raw, UNS_F32, base, n);
		ends_make(&r, base, n, &ends);
		uns_cast(UNS_F32, ends.low, to, down, n);
		uns_cast(UNS_F32, ends.high, to, up, n);
	}
	memcpy(out, down, n * sizeof(*down));
	undecided_find(down, up, n, &u);
	if (!u.n)
		return;
	uns_cast(is, raw, UNS_F32, base, n);
	uns_panels_row(w->of, w->left + row * w->words, w->words, left);
	u.left = left;
	for (i = 0; i < u.n; i++) {
		u.base[i] = base[u.at[i]];
		u.column[i] = column + u.at[i];
	}
	undecided_make(w, &u, w->of_row[row], out);
}

/* Elements [first, first+n), as far as the place has some of them. */
static void place_make(struct work *w, const struct place *at, uint64_t first, size_t n, uint8_t *out)
{
	const struct uns_sum *sum = w->tensor->sum;
	const size_t size = uns_dtype_size(sum->term[0].left.as);
	uint64_t begin, from, to;
	size_t i, row, n_rows;

	for (row = 0; row < at->n_rows; row += n_rows) {
		n_rows = (size_t)uns_u64_min(at->n_rows - row, ROWS);
		for (i = 0; i < at->n_columns; i += UNS_PANEL)
			uns_panels_multiply(w->of, w->left + row * w->words, n_rows, w->words,
					    w->right.panel + i * w->words, w->tile + i, TILE);
		for (i = 0; i < n_rows; i++) {
			begin = (at->row + row + i) * sum->columns + at->column;
			from = uns_u64_max(begin, first);
			to = uns_u64_min(begin + at->n_columns, first + n);
			if (from < to)
				row_make(w, w->base + (from - first) * size, w->tile + i * TILE, row + i,
					 (size_t)(from - begin), (size_t)(to - from),
					 out + (from - first) * sizeof(uint16_t));
		}
	}
}

/* Rows [row, end), all of one batch, in columns [begin, last). */
static int rows_make(struct work *w, uint64_t row, uint64_t end, uint64_t begin, uint64_t last, uint64_t first,
		     size_t n, uint8_t *out, struct uns_err *err)
{
	const struct uns_sum *sum = w->tensor->sum;
	const struct uns_term *term = &sum->term[1];
	const uint64_t before = term->batch ? row / term->batch * sum->columns : 0;
	const uint64_t most = uns_u64_min(LEFT_WORDS / w->words, LEFT_ROWS);
	struct place at = { .row = row };

	for (; at.row < end; at.row += at.n_rows) {
		at.n_rows = (size_t)uns_u64_min(end - at.row, most);
		UNS_TRY(left_read(w, at.row, at.n_rows, err));
		for (at.column = begin; at.column < last; at.column += at.n_columns) {
			at.n_columns = (size_t)uns_u64_min(last - at.column, TILE);
			UNS_TRY(uns_right_get(w->cat, w->reader, term, w->of, before + at.column, at.n_columns,
					      &w->right, err));
			place_make(w, &at, first, n, out);
			uns_right_put(w->reader, &w->right);
		}
	}
	return 0;
}

/* Of a window inside one row, only the tiles with its columns are wanted; of another, all. */
static int window_make(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	struct work *w = ctx;
	const struct uns_factor *base = &w->tensor->sum->term[0].left;
	const uint64_t columns = w->tensor->sum->columns, batch = w->tensor->sum->term[1].batch;
	const uint64_t end = (first + n + columns - 1) / columns, size = uns_dtype_size(base->as);
	const bool in_one = end - first / columns == 1;
	const uint64_t begin = in_one ? first % columns / TILE * TILE : 0;
	const uint64_t last = in_one ? uns_u64_min(columns, (first % columns + n + TILE - 1) / TILE * TILE) : columns;
	uint64_t row, stop;

	UNS_TRY(w->reader->read(w->reader->ctx, base->tensor, w->base, (base->first + first) * size, n * size, err));
	for (row = first / columns; row < end; row = stop) {
		stop = batch ? uns_u64_min(end, (row / batch + 1) * batch) : end;
		UNS_TRY(rows_make(w, row, stop, begin, last, first, n, out, err));
	}
	return 0;
}

int uns_low_rank_bytes(const struct uns_catalog *cat, const struct uns_tensor *tensor,
		       const struct uns_sum_reader *reader, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	const struct uns_term *product = &tensor->sum->term[1];
	const size_t inner = (size_t)product->inner;
	UNS_CLEANUP(uns_free_p) struct work *w = malloc(sizeof(*w));
	const struct uns_elements all = { .make = window_make,
					  .ctx = w,
					  .elem_bytes = uns_dtype_size(tensor->dtype),
					  .most = WINDOW_BYTES / uns_dtype_size(tensor->sum->term[0].left.as) };

	UNS_TRY_ALLOC(w, err);
	w->cat = cat;
	w->tensor = tensor;
	w->reader = reader;
	w->of = uns_panels_of(product->left.as, product->right.as, inner);
	w->words = uns_panels_words(w->of, inner);
	w->times = (float)product->times;
	w->least = (float)((fabs(product->times) + 1) * ((double)inner + 16) *
			   (w->of == UNS_PANELS_OF_BF16 ? 0x1p-125 : 0x1p-149));
	return uns_elements_read(&all, dst, len, at, err);
}
