#include "measure/tally.h"

#include <math.h>
#include <string.h>

#include "engine/widen.h"

enum { CHUNK_ELEMS = 2048, LANES = 8, BIAS = 1023 };

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

static void widen(enum uns_dtype dtype, const uint8_t *p, size_t n, double *out)
{
	size_t i;

	if (dtype != UNS_C64 && dtype != UNS_C128)
		uns_widen(dtype, p, n, out);
	else
		for (i = 0; i < n; i++)
			out[i] = modulus(dtype, p + i * uns_dtype_size(dtype));
}

/* Of a finite number that is not 0. */
static unsigned magnitude_of(double x)
{
	uint64_t bits;
	int exponent;

	memcpy(&bits, &x, sizeof(bits));
	exponent = (int)(bits >> 52 & 0x7ff) - BIAS - UNSHARD_LEAST_EXPONENT;
	return exponent < 0 ? 0 : exponent >= UNSHARD_MAGNITUDES ? UNSHARD_MAGNITUDES - 1 : (unsigned)exponent;
}

static double lanes_sum(const double lane[LANES])
{
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void chunk_add(const double *x, size_t n, struct tally *t)
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
			t->magnitude[magnitude_of(x[i])]++;
		else
			t->n_zero++;
	}
	uns_sum_add(&t->sum, &(struct uns_sum){ .sum = lanes_sum(sum) });
	uns_sum_add(&t->square, &(struct uns_sum){ .sum = lanes_sum(square) });
}

/* `in_row` elements of the row before x belong to it already. */
static size_t rows_add(const struct tally_block *b, const double *x, size_t n, size_t in_row, struct tally *t)
{
	size_t i;

	for (i = 0; i < n; i++) {
		t->has_large |= !(fabs(x[i]) <= b->small);
		if (++in_row < b->row)
			continue;
		t->n_small_rows += !t->has_large;
		t->has_large = false;
		in_row = 0;
	}
	return in_row;
}

void tally_make(const struct tally_block *b, struct tally *out)
{
	const uint8_t *p = b->elems;
	const size_t size = uns_dtype_size(b->dtype);
	size_t left, n, in_row = 0;
	double x[CHUNK_ELEMS];

	*out = (struct tally){ .n_elems = b->n };
	for (left = b->n; left; left -= n, p += n * size) {
		n = left < CHUNK_ELEMS ? left : CHUNK_ELEMS;
		widen(b->dtype, p, n, x);
		chunk_add(x, n, out);
		if (b->row)
			in_row = rows_add(b, x, n, in_row, out);
	}
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

double adam_squares(const struct adam *adam, enum uns_dtype of_m, const void *m, enum uns_dtype of_v, const void *v,
		    size_t n)
{
	const uint8_t *from_m = m, *from_v = v;
	double x[CHUNK_ELEMS], y[CHUNK_ELEMS], square[LANES] = { 0 }, u;
	size_t i, k;

	for (; n; n -= k, from_m += k * uns_dtype_size(of_m), from_v += k * uns_dtype_size(of_v)) {
		k = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
		widen(of_m, from_m, k, x);
		widen(of_v, from_v, k, y);
		for (i = 0; i < k; i++) {
			u = adam->rate * x[i] / (sqrt(y[i]) / adam->root + adam->eps);
			square[i % LANES] += isfinite(u) ? u * u : 0;
		}
	}
	return lanes_sum(square);
}
