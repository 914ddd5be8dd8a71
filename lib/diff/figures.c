#include "diff/figures.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/vectors.h"
#include "engine/widen.h"

/* gcc at -O2 does not vectorise loops of unknown length, nor float arithmetic that might trap. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { CHUNK_ELEMS = 2048, LANES = 8, STRIP_ELEMS = 32 };

/* Compilers do not find these vectors themselves where a loop has several sums. */
typedef double numbers __attribute__((vector_size(32), aligned(8), may_alias));
enum { ACROSS = sizeof(numbers) / sizeof(double), VECTORS = LANES / ACROSS };

_Static_assert(LDBL_MANT_DIG >= 64, "a long double holds every int64 and uint64");
_Static_assert(DIFF_BLOCK_ELEMS % CHUNK_ELEMS == 0 && CHUNK_ELEMS % STRIP_ELEMS == 0, "blocks are whole chunks");

/* Elements of both sides, widened, and what differs. Behind the last element: zeros up to a multiple of
 * STRIP_ELEMS. */
struct chunk {
	double a[CHUNK_ELEMS], b[CHUNK_ELEMS]; /* of complex ones the absolute value */
	double difference[CHUNK_ELEMS]; /* A - B; of complex ones its absolute value */
	uint8_t changed[CHUNK_ELEMS];
};

/* -- elements that are not one double -- */

static bool is_complex(enum uns_dtype dtype)
{
	return dtype == UNS_C64 || dtype == UNS_C128;
}

/* Types whose elements do not all fit into one double. */
static bool is_wide(enum uns_dtype dtype)
{
	return dtype == UNS_I64 || dtype == UNS_U64 || is_complex(dtype);
}

struct wide {
	long double re, im;
};

static struct wide wide_at(const struct uns_widening *w, const uint8_t *p)
{
	struct wide out = { 0 };
	double d[2] = { 0 };
	float f[2];
	int64_t i;
	uint64_t u;

	switch (w->dtype) {
	case UNS_I64:
		memcpy(&i, p, sizeof(i));
		out.re = (long double)i;
		return out;
	case UNS_U64:
		memcpy(&u, p, sizeof(u));
		out.re = (long double)u;
		return out;
	case UNS_C64:
		memcpy(f, p, sizeof(f));
		d[0] = (double)f[0];
		d[1] = (double)f[1];
		break;
	case UNS_C128:
		memcpy(d, p, sizeof(d));
		break;
	default:
		uns_widen(w, p, 1, d);
	}
	out.re = (long double)d[0];
	out.im = (long double)d[1];
	return out;
}

static bool is_same(long double x, long double y)
{
	return (isnan(x) && isnan(y)) || (x == y && !signbit(x) == !signbit(y));
}

/* Not by hypot, of which glibc 2.35 has another version: what is built with that would run with no older glibc. */
static double modulus(long double re, long double im)
{
	return (double)hypotl(re, im);
}

static void chunk_of_wide(struct chunk *c, const struct uns_widening *of_a, const uint8_t *a,
			  const struct uns_widening *of_b, const uint8_t *b, size_t n)
{
	const bool complex = is_complex(of_a->dtype) || is_complex(of_b->dtype);
	struct wide x, y;
	size_t i;

	for (i = 0; i < n; i++) {
		x = wide_at(of_a, a + i * uns_dtype_size(of_a->dtype));
		y = wide_at(of_b, b + i * uns_dtype_size(of_b->dtype));
		c->changed[i] = !is_same(x.re, y.re) || !is_same(x.im, y.im);
		c->a[i] = complex ? modulus(x.re, x.im) : (double)x.re;
		c->b[i] = complex ? modulus(y.re, y.im) : (double)y.re;
		c->difference[i] = complex ? modulus(x.re - y.re, x.im - y.im) : (double)(x.re - y.re);
	}
}

/* Of values that were widened from different dtypes. */
UNS_INLINE void mark_changed_values(struct chunk *c, size_t n)
{
	int64_t x, y;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&x, &c->a[i], sizeof(x));
		memcpy(&y, &c->b[i], sizeof(y));
		c->changed[i] = (x != y) & !((c->a[i] != c->a[i]) & (c->b[i] != c->b[i]));
	}
}

#define MARK_EACH(type)                                      \
	for (i = 0; i < n; i++) {                            \
		type x, y;                                   \
                                                             \
		memcpy(&x, a + i * sizeof(type), sizeof(x)); \
		memcpy(&y, b + i * sizeof(type), sizeof(y)); \
		c->changed[i] = x != y;                      \
	}                                                    \
	break

UNS_INLINE void mark_changed_bits(struct chunk *c, const uint8_t *a, const uint8_t *b, size_t n, size_t size)
{
	size_t i;

	switch (size) {
	case 1:
		MARK_EACH(uint8_t);
	case 2:
		MARK_EACH(uint16_t);
	case 4:
		MARK_EACH(uint32_t);
	case 8:
		MARK_EACH(uint64_t);
	default:
		for (i = 0; i < n; i++)
			c->changed[i] = memcmp(a + i * size, b + i * size, size) != 0;
	}
}

UNS_INLINE void chunk_fill(struct chunk *c, const struct uns_widening *of_a, const uint8_t *a,
			   const struct uns_widening *of_b, const uint8_t *b, size_t n)
{
	size_t i;

	if (is_wide(of_a->dtype) || is_wide(of_b->dtype)) {
		chunk_of_wide(c, of_a, a, of_b, b, n);
	} else {
		uns_widen(of_a, a, n, c->a);
		uns_widen(of_b, b, n, c->b);
		for (i = 0; i < n; i++)
			c->difference[i] = c->a[i] - c->b[i];
		if (of_a->dtype != of_b->dtype)
			mark_changed_values(c, n);
	}
	if (of_a->dtype == of_b->dtype)
		mark_changed_bits(c, a, b, n, uns_dtype_size(of_a->dtype));
	for (; n % STRIP_ELEMS; n++) {
		c->a[n] = c->b[n] = c->difference[n] = 0;
		c->changed[n] = 0;
	}
}

/* -- sums -- */

static double lanes_sum(const double lane[LANES])
{
	return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static size_t padded(size_t n)
{
	return (n + STRIP_ELEMS - 1) / STRIP_ELEMS * STRIP_ELEMS;
}

static inline uint64_t is_finite(double x)
{
	return fabs(x) <= DBL_MAX;
}

static double vectors_sum(const numbers v[VECTORS])
{
	double lane[LANES];

	memcpy(lane, v, sizeof(lane));
	return lanes_sum(lane);
}

/* n of the next functions: of whole strips. */
UNS_INLINE double squares_sum(const double *x, size_t n)
{
	numbers sum[VECTORS] = { 0 }, y;
	size_t i, k;

	for (i = 0; i < n; i += LANES)
		for (k = 0; k < VECTORS; k++) {
			y = *(const numbers *)(x + i + k * ACROSS);
			sum[k] += y * y;
		}
	return vectors_sum(sum);
}

/* Of finite numbers, and of differences that are not negative. */
UNS_INLINE void chunk_sum(const struct chunk *c, size_t n, struct diff_tally *t)
{
	numbers sum[VECTORS] = { 0 }, square[VECTORS] = { 0 }, square_a[VECTORS] = { 0 }, square_b[VECTORS] = { 0 };
	numbers x, y, d;
	size_t i, k;

	for (i = 0; i < n; i += LANES)
		for (k = 0; k < VECTORS; k++) {
			x = *(const numbers *)(c->a + i + k * ACROSS);
			y = *(const numbers *)(c->b + i + k * ACROSS);
			d = *(const numbers *)(c->difference + i + k * ACROSS);
			square_a[k] += x * x;
			square_b[k] += y * y;
			square[k] += d * d;
			sum[k] += d;
		}
	t->square_a.sum += vectors_sum(square_a);
	t->square_b.sum += vectors_sum(square_b);
	t->square.sum += vectors_sum(square);
	t->abs.sum += vectors_sum(sum);
}

/* None is negative. */
UNS_INLINE double max_of(const double *x, size_t n)
{
	double max[STRIP_ELEMS] = { 0 }, most = 0;
	size_t i, k;

	for (i = 0; i < n; i += STRIP_ELEMS)
		for (k = 0; k < STRIP_ELEMS; k++)
			max[k] = x[i + k] > max[k] ? x[i + k] : max[k];
	for (k = 0; k < STRIP_ELEMS; k++)
		most = max[k] > most ? max[k] : most;
	return most;
}

/* Of elements that are the same on both sides. */
UNS_INLINE void chunk_add_equal(struct chunk *c, size_t n, struct diff_tally *t)
{
	uint64_t n_finite = 0, finite;
	double square;
	size_t i;

	for (i = 0; i < n; i++) {
		finite = is_finite(c->a[i]);
		c->a[i] = finite ? c->a[i] : 0;
		n_finite += finite;
	}
	square = squares_sum(c->a, padded(n));
	t->n_finite += n_finite;
	t->n_not_finite_a += n - n_finite;
	t->n_not_finite_b += n - n_finite;
	t->square_a.sum += square;
	t->square_b.sum += square;
}

/* Counts, and leaves of all numbers the finite ones, of the differences their absolute values. */
UNS_INLINE void chunk_count(struct chunk *c, size_t n, const struct diff_tolerance *tolerance, struct diff_tally *t)
{
	const double absolute = tolerance->absolute, relative = tolerance->relative;
	const uint64_t intolerant = !(absolute > 0 || relative > 0);
	uint64_t n_a = 0, n_b = 0, n_both = 0, n_changed = 0, n_beyond = 0, n_odd = 0, is_a, is_b, both, changed;
	double y, d;
	size_t i;

	for (i = 0; i < n; i++) {
		is_a = is_finite(c->a[i]);
		is_b = is_finite(c->b[i]);
		both = is_a & is_b;
		changed = c->changed[i];
		y = is_b ? c->b[i] : 0;
		d = both ? fabs(c->difference[i]) : 0;
		c->a[i] = is_a ? c->a[i] : 0;
		c->b[i] = y;
		c->difference[i] = d;
		n_a += is_a;
		n_b += is_b;
		n_both += both;
		n_changed += changed;
		n_odd += changed & !both;
		n_beyond += changed & (intolerant | !both | (d > absolute + relative * fabs(y)));
	}
	t->n_not_finite_a += n - n_a;
	t->n_not_finite_b += n - n_b;
	t->n_finite += n_both;
	t->n_changed += n_changed;
	t->n_beyond += n_beyond;
	t->n_not_finite_changed += n_odd;
}

UNS_INLINE void chunk_add(struct chunk *c, size_t n, const struct diff_tolerance *tolerance, struct diff_tally *t)
{
	const size_t whole = padded(n);
	double max;

	chunk_count(c, n, tolerance, t);
	chunk_sum(c, whole, t);
	max = max_of(c->difference, whole);
	t->max_abs = max > t->max_abs ? max : t->max_abs;
}

UNS_INLINE void block_add(enum uns_dtype of_a, const uint8_t *a, enum uns_dtype of_b, const uint8_t *b, size_t n,
			  const struct diff_tolerance *tolerance, struct diff_tally *out)
{
	const size_t size_a = uns_dtype_size(of_a), size_b = uns_dtype_size(of_b);
	const bool equal = of_a == of_b && memcmp(a, b, n * size_a) == 0;
	struct uns_widening widening_a, widening_b;
	struct chunk c;
	size_t m;

	uns_widening_init(&widening_a, of_a);
	uns_widening_init(&widening_b, of_b);
	for (; n; n -= m, a += m * size_a, b += m * size_b) {
		m = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
		chunk_fill(&c, &widening_a, a, &widening_b, b, m);
		if (equal)
			chunk_add_equal(&c, m, out);
		else
			chunk_add(&c, m, tolerance, out);
	}
}

UNS_AVX2 static void block_add_by_avx2(enum uns_dtype of_a, const uint8_t *a, enum uns_dtype of_b, const uint8_t *b,
				       size_t n, const struct diff_tolerance *tolerance, struct diff_tally *out)
{
	block_add(of_a, a, of_b, b, n, tolerance, out);
}

void diff_tally_block(enum uns_dtype of_a, const void *a, enum uns_dtype of_b, const void *b, size_t n,
		      const struct diff_tolerance *tolerance, struct diff_tally *out)
{
	*out = (struct diff_tally){ .n_elems = n };
	if (uns_has_avx2())
		block_add_by_avx2(of_a, a, of_b, b, n, tolerance, out);
	else
		block_add(of_a, a, of_b, b, n, tolerance, out);
}

void diff_tally_add(struct diff_tally *to, const struct diff_tally *t)
{
	to->n_elems += t->n_elems;
	to->n_changed += t->n_changed;
	to->n_beyond += t->n_beyond;
	to->n_not_finite_a += t->n_not_finite_a;
	to->n_not_finite_b += t->n_not_finite_b;
	to->n_not_finite_changed += t->n_not_finite_changed;
	to->n_finite += t->n_finite;
	to->max_abs = t->max_abs > to->max_abs ? t->max_abs : to->max_abs;
	uns_sum_add(&to->abs, &t->abs);
	uns_sum_add(&to->square, &t->square);
	uns_sum_add(&to->square_a, &t->square_a);
	uns_sum_add(&to->square_b, &t->square_b);
}
