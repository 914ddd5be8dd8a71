#include "measure/tally.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/vectors.h"
#include "engine/widen.h"

/* gcc at -O2 does not vectorise loops of unknown length, nor float arithmetic that might trap. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { CHUNK_ELEMS = 2048, LANES = 8, STRIP_ELEMS = 32, BIAS = 1023, EXPONENTS = 2048, TABLES = 8 };

/* Compilers do not find these vectors themselves where a loop has several sums. */
typedef double numbers __attribute__((vector_size(32), aligned(8), may_alias));
enum { ACROSS = sizeof(numbers) / sizeof(double), VECTORS = LANES / ACROSS };

/* How many elements of a block have each exponent. Neighbours, which often have the same one, are counted apart: a
 * count need not wait for the one before it. */
struct exponents {
	uint32_t n[EXPONENTS][TABLES];
};

_Static_assert(TALLY_BLOCK_ELEMS % CHUNK_ELEMS == 0 && CHUNK_ELEMS % LANES == 0, "blocks are whole chunks");

static double modulus(enum uns_dtype dtype, const uint8_t *p)
{
	double d[2];
	float f[2];

	if (dtype == UNS_C128) {
		memcpy(d, p, sizeof(d));
	} else {
		memcpy(f, p, sizeof(f));
		d[0] = (double)f[0];
		d[1] = (double)f[1];
	}
	return (double)hypotl((long double)d[0], (long double)d[1]);
}

static void widen(const struct uns_widening *w, const uint8_t *p, size_t n, double *out)
{
	size_t i;

	if (w->dtype != UNS_C64 && w->dtype != UNS_C128)
		uns_widen(w, p, n, out);
	else
		for (i = 0; i < n; i++)
			out[i] = modulus(w->dtype, p + i * uns_dtype_size(w->dtype));
}

/* As the number is stored: 0 = zero, or less than any with an exponent of its own. */
static unsigned exponent_of(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits >> 52 & (EXPONENTS - 1);
}

static unsigned magnitude_of(unsigned exponent)
{
	const int magnitude = (int)exponent - BIAS - UNSHARD_LEAST_EXPONENT;

	return magnitude < 0 ? 0 : magnitude >= UNSHARD_MAGNITUDES ? UNSHARD_MAGNITUDES - 1 : (unsigned)magnitude;
}

static double lanes_sum(const double lane[LANES])
{
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Any n elements. */
static void some_add(const double *x, size_t n, struct tally *t)
{
	double sum[LANES] = { 0 }, square[LANES] = { 0 };
	size_t i;

	for (i = 0; i < n; i++) {
		if (!isfinite(x[i])) {
			t->n_nan += isnan(x[i]) != 0;
			t->n_infinite += isnan(x[i]) == 0;
			continue;
		}
		t->min = t->n_finite && t->min <= x[i] ? t->min : x[i];
		t->max = t->n_finite && t->max >= x[i] ? t->max : x[i];
		t->n_finite++;
		t->n_negative += x[i] < 0;
		sum[i % LANES] += x[i];
		square[i % LANES] += x[i] * x[i];
		if (x[i] < 0 || x[i] > 0)
			t->magnitude[magnitude_of(exponent_of(x[i]))]++;
		else
			t->n_zero++;
	}
	uns_sum_add(&t->sum, &(struct uns_sum){ .sum = lanes_sum(sum) });
	uns_sum_add(&t->square, &(struct uns_sum){ .sum = lanes_sum(square) });
}

/* In loops of their own: with all figures in one, registers do not suffice. */
UNS_INLINE void extremes_add(const double *x, struct tally *t)
{
	double min[STRIP_ELEMS], max[STRIP_ELEMS];
	size_t i, k;

	memcpy(min, x, sizeof(min));
	memcpy(max, x, sizeof(max));
	for (i = STRIP_ELEMS; i < CHUNK_ELEMS; i += STRIP_ELEMS)
		for (k = 0; k < STRIP_ELEMS; k++) {
			min[k] = x[i + k] < min[k] ? x[i + k] : min[k];
			max[k] = x[i + k] > max[k] ? x[i + k] : max[k];
		}
	for (k = 0; k < STRIP_ELEMS; k++) {
		t->min = t->n_finite + k && t->min <= min[k] ? t->min : min[k];
		t->max = t->n_finite + k && t->max >= max[k] ? t->max : max[k];
	}
}

/* A whole chunk of finite elements, without a branch: as some_add, but for magnitudes. False = they are not all finite,
 * or too large to be squared: nothing was added. */
UNS_INLINE bool chunk_add(const double *x, struct tally *t)
{
	numbers sum[VECTORS] = { 0 }, square[VECTORS] = { 0 }, y;
	double lane[LANES], squares;
	uint64_t n_zero = 0, n_negative = 0;
	size_t i, k;

	for (i = 0; i < CHUNK_ELEMS; i += LANES)
		for (k = 0; k < VECTORS; k++) {
			y = *(const numbers *)(x + i + k * ACROSS);
			sum[k] += y;
			square[k] += y * y;
		}
	memcpy(lane, square, sizeof(lane));
	squares = lanes_sum(lane);
	if (!isfinite(squares))
		return false;
	extremes_add(x, t);
	for (i = 0; i < CHUNK_ELEMS; i++) {
		n_zero += x[i] == 0; /* NOLINT: equal to the bit is what is counted */
		n_negative += x[i] < 0;
	}
	memcpy(lane, sum, sizeof(lane));
	t->n_zero += n_zero;
	t->n_negative += n_negative;
	t->n_finite += CHUNK_ELEMS;
	uns_sum_add(&t->sum, &(struct uns_sum){ .sum = lanes_sum(lane) });
	uns_sum_add(&t->square, &(struct uns_sum){ .sum = squares });
	return true;
}

static void exponents_count(const double *x, struct exponents *e)
{
	size_t i, k;

	for (i = 0; i < CHUNK_ELEMS; i += TABLES)
		for (k = 0; k < TABLES; k++)
			e->n[exponent_of(x[i + k])][k]++;
}

/* zeros: of the elements counted; they have no magnitude. */
static void exponents_add(const struct exponents *e, uint64_t zeros, struct tally *t)
{
	unsigned i, k;

	for (i = 0; i < EXPONENTS; i++)
		for (k = 0; k < TABLES; k++)
			t->magnitude[magnitude_of(i)] += e->n[i][k];
	t->magnitude[0] -= zeros;
}

/* `in_row` elements of the row before x belong to it already. Of a row that is large no more elements are looked at. */
static size_t rows_add(const struct tally_block *b, const double *x, size_t n, size_t in_row, struct tally *t)
{
	size_t i, of_row;

	for (; n; n -= of_row, x += of_row) {
		of_row = b->row - in_row < n ? b->row - in_row : n;
		for (i = 0; i < of_row && !t->has_large; i++)
			t->has_large = !(fabs(x[i]) <= b->small);
		in_row += of_row;
		if (in_row < b->row)
			continue;
		t->n_small_rows += !t->has_large;
		t->has_large = false;
		in_row = 0;
	}
	return in_row;
}

UNS_INLINE void block_add(const struct tally_block *b, struct tally *out)
{
	const uint8_t *p = b->elems;
	const size_t size = uns_dtype_size(b->dtype);
	size_t left, n, in_row = 0;
	uint64_t zeros = 0, before;
	struct exponents exponents = { 0 };
	struct uns_widening widening;
	double x[CHUNK_ELEMS];

	uns_widening_init(&widening, b->dtype);
	for (left = b->n; left; left -= n, p += n * size) {
		n = left < CHUNK_ELEMS ? left : CHUNK_ELEMS;
		widen(&widening, p, n, x);
		before = out->n_zero;
		if (n == CHUNK_ELEMS && chunk_add(x, out)) {
			exponents_count(x, &exponents);
			zeros += out->n_zero - before;
		} else {
			some_add(x, n, out);
		}
		if (b->row)
			in_row = rows_add(b, x, n, in_row, out);
	}
	exponents_add(&exponents, zeros, out);
}

UNS_AVX2 static void block_add_by_avx2(const struct tally_block *block, struct tally *out)
{
	block_add(block, out);
}

void tally_make(const struct tally_block *block, struct tally *out)
{
	*out = (struct tally){ .n_elems = block->n };
	if (uns_has_avx2())
		block_add_by_avx2(block, out);
	else
		block_add(block, out);
}

void tally_add(struct tally *to, const struct tally *t)
{
	size_t i;

	if (t->n_finite) {
		to->min = to->n_finite && to->min <= t->min ? to->min : t->min;
		to->max = to->n_finite && to->max >= t->max ? to->max : t->max;
	}
	to->n_elems += t->n_elems;
	to->n_zero += t->n_zero;
	to->n_negative += t->n_negative;
	to->n_nan += t->n_nan;
	to->n_infinite += t->n_infinite;
	to->n_finite += t->n_finite;
	to->n_small_rows += t->n_small_rows;
	uns_sum_add(&to->sum, &t->sum);
	uns_sum_add(&to->square, &t->square);
	for (i = 0; i < UNSHARD_MAGNITUDES; i++)
		to->magnitude[i] += t->magnitude[i];
}

/* n elements, at most CHUNK_ELEMS. */
UNS_INLINE void updates_square(const struct adam *adam, const double *m, const double *v, size_t n, double *out)
{
	double u;
	size_t i;

	for (i = 0; i < n; i++) {
		u = adam->rate * m[i] / (sqrt(v[i]) / adam->root + adam->eps);
		out[i] = fabs(u) <= DBL_MAX ? u * u : 0;
	}
}

UNS_AVX2 static void updates_square_by_avx2(const struct adam *adam, const double *m, const double *v, size_t n,
					    double *out)
{
	updates_square(adam, m, v, n, out);
}

double adam_squares(const struct adam *adam, enum uns_dtype of_m, const void *m, enum uns_dtype of_v, const void *v,
		    size_t n)
{
	const uint8_t *from_m = m, *from_v = v;
	struct uns_widening widening_m, widening_v;
	double x[CHUNK_ELEMS], y[CHUNK_ELEMS], square[CHUNK_ELEMS], sum[LANES] = { 0 };
	size_t i, k;

	uns_widening_init(&widening_m, of_m);
	uns_widening_init(&widening_v, of_v);
	for (; n; n -= k, from_m += k * uns_dtype_size(of_m), from_v += k * uns_dtype_size(of_v)) {
		k = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
		widen(&widening_m, from_m, k, x);
		widen(&widening_v, from_v, k, y);
		if (uns_has_avx2())
			updates_square_by_avx2(adam, x, y, k, square);
		else
			updates_square(adam, x, y, k, square);
		for (i = 0; i < k; i++)
			sum[i % LANES] += square[i];
	}
	return lanes_sum(sum);
}
