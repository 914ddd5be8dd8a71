/* The sum is defined in fp64 (model/sum_tensor.h). Almost always fp32 decides how it is rounded to 16 bits: the sum is
 * computed in fp32, with a bound on how far it is from the one in fp64, and if both ends of that interval are rounded
 * to the same number, so is all between them. The few other elements are computed in fp64.
 *
 * The bound. With u = 2^-24, a sum of n products in fp32, of which no number goes through more than m additions and
 * one multiplication, is at most (m + 1) * u / (1 - (m + 1) * u) * S from the exact one, where S is the sum of the
 * products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). S is at most the product
 * of the norms of the row and the column. m is uns_panels_additions. `times` in fp32, and the multiplication by it, add
 * 2 * u * S; the addition of the matrix's element and those of the bound itself, 3 * u of the result
 * (engine/intervals.c); numbers below the normal ones, 2^-149 for each operation. What fp64 is from the exact sum is
 * far less than what these are rounded up by.
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
#include "engine/fp64.h"
#include "engine/intervals.h"
#include "engine/panels.h"
#include "engine/right_factor.h"

/* LEFT_WORDS: of rows that are read at once; ROWS of them are multiplied at a time. */
enum {
	WINDOW_BYTES = 1 << 20,
	TILE = UNS_RIGHT_COLUMNS,
	STEP = TILE + UNS_PANEL,
	ROWS = 48,
	LEFT_WORDS = 64 << 10,
	LEFT_ROWS = 4 << 10,
	AT_ONCE = 16
};
_Static_assert((int)TILE <= (int)UNS_INTERVALS, "a row of a tile is rounded at once");
_Static_assert(LEFT_WORDS >= UNS_RIGHT_COLUMNS * UNS_RIGHT_INNER, "rows are read by uns_rows_read");

#define U          0x1p-24
#define MOST_TIMES 0x1p20

/* An element of a tile that fp32 does not decide. */
struct undecided {
	uint8_t *out;
	float base;
	uint16_t row, column; /* of `left`; of the tile */
};

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
	float tile[ROWS * STEP];
	struct undecided undecided[ROWS * TILE];
	uint16_t order[ROWS * TILE];
	size_t n_undecided;
	uint8_t base[WINDOW_BYTES]; /* the matrix's elements of a window, if they have more bytes than what is made */
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

/* -- the left factor -- */

static int left_read(struct work *w, uint64_t row, size_t n, struct uns_err *err)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	const size_t inner = (size_t)term->inner, steps = uns_panels_additions(inner) + 4;
	const float of_norm = (float)(1.01 * (double)steps * U * (fabs(term->times) + 0x1p-20));
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

/* Elements [first, first+n) are made: of `base`, which may be where they are put. */
struct window {
	const uint8_t *base;
	uint64_t first;
	size_t n;
	uint8_t *out;
};

/* The sum in fp64, added in the order in which engine/sum.c adds. */
static double sum_in_order(const struct work *w, const struct undecided *u)
{
	const struct uns_term *term = &w->tensor->sum->term[1];
	float left[UNS_RIGHT_INNER], right[UNS_RIGHT_INNER];
	uns_word word[UNS_RIGHT_INNER];
	double sum = 0, product;
	size_t k;

	uns_panels_column(w->right.panel, w->words, u->column, word);
	uns_panels_numbers(w->of, word, w->words, right);
	uns_panels_numbers(w->of, w->left + u->row * w->words, w->words, left);
	for (k = 0; k < term->inner; k++) {
		product = (double)left[k] * right[k]; /* exact */
		sum += product;
	}
	return u->base + term->times * sum;
}

/* The ends of the interval in which the sum in fp64 is. Products are exact in fp64, and may be added in any order, if
 * that decides: by the same bound with u = 2^-53, twice, for the other order's error. It is less than 2^-24 of that of
 * fp32. */
static void narrow(const struct work *w, const struct undecided *u, const uns_word *column, double *low, double *high)
{
	const double product = w->tensor->sum->term[1].times *
			       uns_panels_product(w->of, w->left + u->row * w->words, column, w->words);
	const double e = (double)w->of_row[u->row] * w->right.norm[u->column] * 0x1p-24 +
			 (fabs((double)u->base) + fabs(product)) * 0x1p-50 + w->least;

	*low = e < INFINITY ? u->base + product - e : 0;
	*high = e < INFINITY ? u->base + product + e : 1;
}

/* So many of those whose numbers are in `order`. */
static void undecided_make(const struct work *w, const uint16_t *order, size_t n)
{
	const enum uns_dtype to = w->tensor->dtype;
	const struct undecided *u;
	double low[AT_ONCE], high[AT_ONCE];
	uint16_t down[AT_ONCE], up[AT_ONCE];
	uns_word column[UNS_RIGHT_INNER];
	size_t i;

	for (i = 0; i < n; i++) {
		u = &w->undecided[order[i]];
		if (i == 0 || u->column != w->undecided[order[i - 1]].column)
			uns_panels_column(w->right.panel, w->words, u->column, column);
		narrow(w, u, column, &low[i], &high[i]);
	}
	uns_fp64_round(low, to, (uint8_t *)down, n);
	uns_fp64_round(high, to, (uint8_t *)up, n);
	for (i = 0; i < n; i++) {
		u = &w->undecided[order[i]];
		if (down[i] != up[i]) {
			low[i] = sum_in_order(w, u);
			uns_fp64_round(&low[i], to, (uint8_t *)&down[i], 1);
		}
		memcpy(u->out, &down[i], sizeof(*down));
	}
}

/* Column after column: the numbers of one are far from each other, in lines of a processor's cache that have those of
 * its neighbours, too. */
static void all_undecided_make(struct work *w)
{
	size_t before[TILE + 1] = { 0 }, i;

	for (i = 0; i < w->n_undecided; i++)
		before[w->undecided[i].column + 1]++;
	for (i = 1; i < TILE; i++)
		before[i] += before[i - 1];
	for (i = 0; i < w->n_undecided; i++)
		w->order[before[w->undecided[i].column]++] = (uint16_t)i;
	for (i = 0; i < w->n_undecided; i += AT_ONCE)
		undecided_make(w, w->order + i, w->n_undecided - i < AT_ONCE ? w->n_undecided - i : AT_ONCE);
	w->n_undecided = 0;
}

/* Remembers those that differ of n elements of row `row` of `left`, from column `column` of the tile on. */
static void undecided_find(struct work *w, const uint16_t *differ, size_t n, const uint8_t *base, size_t row,
			   size_t column, uint8_t *out)
{
	static const uint16_t none[AT_ONCE];
	const enum uns_dtype is = w->tensor->sum->term[0].left.as;
	struct undecided *u;
	size_t first, i;

	for (first = 0; first < n; first += AT_ONCE) {
		if (n - first >= AT_ONCE && memcmp(differ + first, none, sizeof(none)) == 0)
			continue;
		for (i = first; i < n && i < first + AT_ONCE; i++) {
			if (!differ[i])
				continue;
			u = &w->undecided[w->n_undecided++];
			*u = (struct undecided){ out + i * sizeof(*differ), 0, (uint16_t)row, (uint16_t)(column + i) };
			uns_cast(is, base + i * uns_dtype_size(is), UNS_F32, &u->base, 1);
		}
	}
}

/* n elements of row `row` of `left`, from column `column` of the tile on, but for those that are undecided. */
static void row_make(struct work *w, const uint8_t *base, const float *tile, size_t row, size_t column, size_t n,
		     uint8_t *out)
{
	const struct uns_intervals of = { tile + column, w->right.norm + column, w->times, w->of_row[row], w->least };
	uint16_t made[TILE], differ[TILE];

	uns_intervals_round(&of, w->tensor->sum->term[0].left.as, base, w->tensor->dtype, n, made, differ);
	undecided_find(w, differ, n, base, row, column, out);
	memcpy(out, made, n * sizeof(*made));
}

/* The window's elements of a place. */
static void place_make(struct work *w, const struct place *at, const struct window *window)
{
	const struct uns_sum *sum = w->tensor->sum;
	const size_t size = uns_dtype_size(sum->term[0].left.as);
	uint64_t begin, from, to;
	size_t i, row, n_rows, skip;

	for (row = 0; row < at->n_rows; row += n_rows) {
		n_rows = (size_t)uns_u64_min(at->n_rows - row, ROWS);
		for (i = 0; i < at->n_columns; i += UNS_PANEL)
			uns_panels_multiply(w->of, w->left + row * w->words, n_rows, w->words,
					    w->right.panel + i * w->words, w->tile + i, STEP);
		for (i = 0; i < n_rows; i++) {
			begin = (at->row + row + i) * sum->columns + at->column;
			from = uns_u64_max(begin, window->first);
			to = uns_u64_min(begin + at->n_columns, window->first + window->n);
			if (from >= to)
				continue;
			skip = (size_t)(from - window->first);
			row_make(w, window->base + skip * size, w->tile + i * STEP, row + i, (size_t)(from - begin),
				 (size_t)(to - from), window->out + skip * sizeof(uint16_t));
		}
		all_undecided_make(w);
	}
}

/* Rows [row, end), all of one batch, in columns [begin, last). */
static int rows_make(struct work *w, uint64_t row, uint64_t end, uint64_t begin, uint64_t last,
		     const struct window *window, struct uns_err *err)
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
			place_make(w, &at, window);
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
	uint8_t *raw = size == sizeof(uint16_t) ? out : w->base; /* what is made takes its place */
	const struct window window = { raw, first, n, out };
	uint64_t row, stop;

	UNS_TRY(w->reader->read(w->reader->ctx, base->tensor, raw, (base->first + first) * size, n * size, err));
	for (row = first / columns; row < end; row = stop) {
		stop = batch ? uns_u64_min(end, (row / batch + 1) * batch) : end;
		UNS_TRY(rows_make(w, row, stop, begin, last, &window, err));
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
	w->n_undecided = 0;
	w->of = uns_panels_of(product->left.as, product->right.as, inner);
	w->words = uns_panels_words(w->of, inner);
	w->times = (float)product->times;
	w->least = (float)((fabs(product->times) + 1) * ((double)inner + 16) *
			   (w->of == UNS_PANELS_OF_BF16 ? 0x1p-125 : 0x1p-149));
	return uns_elements_read(&all, dst, len, at, err);
}
