/* Rows of blocks are measured one at a time. While an entry of the cache is made, or held, nothing may be read that
 * might need another one: so the entry is looked for, the row is measured without it, and then it is put there. */
#include "engine/scaled.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/vectors.h"
#include "engine/cast.h"
#include "engine/elements.h"
#include "engine/engine.h"
#include "engine/gather.h"
#include "model/joined_tensor.h"

/* gcc at -O2 does not vectorise loops of unknown length, nor float arithmetic that might trap. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { WINDOW = 64 << 10, NOT_THERE = -ENODATA };

#define LARGEST      448.0f
#define F32_EXP(e)   ((int32_t)(e) << 23)
#define F32_SIGN_OFF INT32_C(0x7fffffff)

static inline float number_of(int32_t bits)
{
	return uns_float_of((uint32_t)bits);
}

/* -- the arithmetic: loops without branches, once for any processor and once for those with AVX2 -- */

/* Magnitudes are compared by their bits, of which a NaN has the largest, as torch's amax gives it. */
UNS_INLINE int32_t largest_of(const float *v, size_t n, int32_t most)
{
	int32_t magnitude;
	size_t i;

	for (i = 0; i < n; i++) {
		magnitude = (int32_t)uns_bits_of(v[i]) & F32_SIGN_OFF;
		most = magnitude > most ? magnitude : most;
	}
	return most;
}

/* To nearest even, as c10/util/Float8_e4m3fn.h of torch 2.13 does it; x is a NaN or within the type's range. */
static inline uint8_t e4m3_of(float x)
{
	const int32_t magnitude = (int32_t)uns_bits_of(x) & F32_SIGN_OFF, odd = magnitude >> 20 & 1;
	const int32_t normal = (magnitude - F32_EXP(127 - 7) + 0x7ffff + odd) >> 20;
	const int32_t tiny = (int32_t)uns_bits_of(number_of(magnitude) + number_of(F32_EXP(141))) - F32_EXP(141);
	int32_t r = magnitude < F32_EXP(121) ? tiny : normal;

	r = magnitude > F32_EXP(255) ? 0x7f : r;
	return (uint8_t)(r | (uns_bits_of(x) >> 24 & 0x80));
}

UNS_INLINE void numbers_of(const float *v, size_t n, float scale, uint8_t *out)
{
	float x;
	size_t i;

	for (i = 0; i < n; i++) {
		x = v[i] * scale;
		x = x > LARGEST ? LARGEST : x;
		x = x < -LARGEST ? -LARGEST : x;
		out[i] = e4m3_of(x);
	}
}

UNS_AVX2 static int32_t largest_by_avx2(const float *v, size_t n, int32_t most)
{
	return largest_of(v, n, most);
}

UNS_AVX2 static void numbers_by_avx2(const float *v, size_t n, float scale, uint8_t *out)
{
	numbers_of(v, n, scale, out);
}

static int32_t largest(const float *v, size_t n, int32_t most)
{
	return uns_has_avx2() ? largest_by_avx2(v, n, most) : largest_of(v, n, most);
}

static void numbers_make(const float *v, size_t n, float scale, uint8_t *out)
{
	if (uns_has_avx2())
		numbers_by_avx2(v, n, scale, out);
	else
		numbers_of(v, n, scale, out);
}

/* -- what a read works with -- */

struct work {
	struct uns_backing *b;
	const struct uns_scaled *s;
	const struct uns_scaled_reader *reader;
	uint64_t across; /* blocks */
	float *scale; /* of the blocks in the row `held`; UINT64_MAX = of none */
	uint64_t held;
	float value[WINDOW];
	uint8_t raw[WINDOW * sizeof(double)];
};

static void work_free_p(struct work **w)
{
	if (*w)
		free((*w)->scale);
	free(*w);
}

static uint64_t row_begin(const struct work *w, uint64_t row)
{
	return row * UNS_SCALED_BLOCK * w->s->columns;
}

static uint64_t row_end(const struct work *w, uint64_t row)
{
	return uns_u64_min(row_begin(w, row + 1), w->s->rows * w->s->columns);
}

static int values_read(struct work *w, uint64_t first, size_t n, struct uns_err *err)
{
	const size_t size = uns_dtype_size(w->s->dtype);

	UNS_TRY(w->reader->read(w->reader->ctx, &w->s->source, w->raw, first * size, n * size, err));
	uns_cast(w->s->dtype, w->raw, UNS_F32, w->value, n);
	return 0;
}

/* How many of n elements from `at` on are in the same row of the matrix and the same block. */
static size_t in_block(const struct work *w, uint64_t at, size_t n, uint64_t *block)
{
	const uint64_t column = at % w->s->columns, end = (column / UNS_SCALED_BLOCK + 1) * UNS_SCALED_BLOCK;

	*block = column / UNS_SCALED_BLOCK;
	return (size_t)uns_u64_min(n, uns_u64_min(end, w->s->columns) - column);
}

/* -- scales -- */

static int row_measure(struct work *w, uint64_t row, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) int32_t *most = calloc(w->across, sizeof(*most));
	uint64_t at, block;
	size_t n, i, m;

	UNS_TRY_ALLOC(most, err);
	for (at = row_begin(w, row); at < row_end(w, row); at += n) {
		n = (size_t)uns_u64_min(row_end(w, row) - at, WINDOW);
		UNS_TRY(values_read(w, at, n, err));
		for (i = 0; i < n; i += m) {
			m = in_block(w, at + i, n - i, &block);
			most[block] = largest(w->value + i, m, most[block]);
		}
	}
	for (i = 0; i < w->across; i++) /* a number / a tensor is in torch the number * the tensor's reciprocal */
		w->scale[i] = number_of(most[i]) > 0 ? 1 / number_of(most[i]) * LARGEST : 1;
	return 0;
}

/* The same elements have one id in all views, and none that a piece or a block has. */
static struct uns_cache_id id_of(const struct work *w, uint64_t row)
{
	const uint64_t is_scale = UINT64_C(1) << 61;
	const struct uns_segment *from = w->s->source.segment;
	const struct uns_block *block = uns_tensor_is_of_blocks(from->tensor) ? from->tensor->own->block : NULL;
	const struct uns_tensor *t = block ? block->source[0].tensor : from->tensor;
	const uint64_t reversed = block ? (uint64_t)block->reversed << 60 : 0, is_joined = UINT64_C(1) << 59;
	const struct uns_joined *joined = from->tensor->joined;

	if (joined)
		return (struct uns_cache_id){ { is_scale | is_joined | w->s->dtype, joined->id[0], row, w->s->rows,
						w->s->columns, from->first_elem, joined->id[1] } };
	return (struct uns_cache_id){ { is_scale | reversed | (uint64_t)(t - w->b->cat->tensors),
					from->first_elem + (block ? block->source[0].first_elem : 0), row, w->s->rows,
					w->s->columns, w->s->dtype } };
}

struct put {
	const float *scale; /* NULL = there are none: it is only looked whether there is an entry */
	size_t bytes;
};

static int entry_fill(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	const struct put *put = ctx;

	if (!put->scale)
		return NOT_THERE;
	UNS_TRY(uns_cached_write(e, put->scale, put->bytes, 0, err));
	uns_cached_settle(e, 0, put->bytes);
	return 0;
}

/* Scales that were found earlier: are the files still there that they were found of? */
static int row_check(const struct work *w, uint64_t row, struct uns_err *err)
{
	const uint64_t size = uns_dtype_size(w->s->dtype);

	return uns_pieces_check(w->b, &w->s->source, row_begin(w, row) * size, row_end(w, row) * size, err);
}

/* Sets `scale`. */
static int scales_get(struct work *w, uint64_t row, struct uns_err *err)
{
	struct uns_cache *cache = w->b->engine->cache;
	const struct uns_cache_id id = id_of(w, row);
	struct put put = { .bytes = w->across * sizeof(*w->scale) };
	struct uns_cached *e;
	int code;

	if (w->held == row)
		return 0;
	w->held = UINT64_MAX;
	code = uns_cache_get(cache, w->b, id, put.bytes, entry_fill, &put, &e, err);
	if (code == 0) {
		code = uns_cached_read(e, w->scale, put.bytes, 0, err);
		uns_cache_put(cache, e);
		UNS_TRY(code);
		UNS_TRY(row_check(w, row, err));
	} else if (code == NOT_THERE) {
		UNS_TRY(row_measure(w, row, err));
		put.scale = w->scale;
		UNS_TRY(uns_cache_get(cache, w->b, id, put.bytes, entry_fill, &put, &e, err));
		uns_cache_put(cache, e);
	} else {
		return code;
	}
	w->held = row;
	return 0;
}

/* -- elements -- */

static int numbers_window(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	struct work *w = ctx;
	uint64_t row, at, end, block;
	size_t i, m;

	for (at = first; at < first + n; at = end) {
		row = at / w->s->columns / UNS_SCALED_BLOCK;
		end = uns_u64_min(row_end(w, row), first + n);
		UNS_TRY(scales_get(w, row, err));
		UNS_TRY(values_read(w, at, (size_t)(end - at), err));
		for (i = 0; i < end - at; i += m) {
			m = in_block(w, at + i, (size_t)(end - at) - i, &block);
			numbers_make(w->value + i, m, w->scale[block], out + (at - first) + i);
		}
	}
	return 0;
}

static int inverses_window(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	struct work *w = ctx;
	float inverse;
	size_t i;

	for (i = 0; i < n; i++) {
		UNS_TRY(scales_get(w, (first + i) / w->across, err));
		inverse = 1 / w->scale[(first + i) % w->across];
		memcpy(out + i * sizeof(inverse), &inverse, sizeof(inverse));
	}
	return 0;
}

int uns_scaled_bytes(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_scaled_reader *reader,
		     uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	UNS_CLEANUP(work_free_p) struct work *w = malloc(sizeof(*w));
	struct uns_elements all = { .make = tensor->scaled->inverses ? inverses_window : numbers_window,
				    .elem_bytes = uns_dtype_size(tensor->dtype),
				    .most = WINDOW };

	UNS_TRY_ALLOC(w, err);
	w->b = b;
	w->s = tensor->scaled;
	w->reader = reader;
	w->across = uns_scaled_blocks(w->s->columns);
	w->held = UINT64_MAX;
	w->scale = malloc(w->across * sizeof(*w->scale));
	UNS_TRY_ALLOC(w->scale, err);
	all.ctx = w;
	return uns_elements_read(&all, dst, len, at, err);
}
