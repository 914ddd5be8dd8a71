/* Tensors of 8-bit numbers with a scale for each block, and the tensors of these scales, computed from a matrix when
 * they are read. A block is a square of UNS_SCALED_BLOCK rows and columns, smaller at the matrix's ends.
 *
 *     scale   = 448 * (1 / the largest magnitude in the block); 1 if all are 0     448: e4m3's largest number
 *     number  = element * scale, limited to [-448, 448], rounded to e4m3
 *     inverse = 1 / scale, which a reader multiplies by
 *
 * each step in fp32. Source: transformers 5.23, integrations/finegrained_fp8.py (Fp8Quantize); DeepSeek-V3 has blocks,
 * names and dtypes like these. */
#ifndef UNS_MODEL_SCALED_TENSOR_H
#define UNS_MODEL_SCALED_TENSOR_H

#include "model/tree.h"

enum { UNS_SCALED_BLOCK = 128 };

struct uns_scaled {
	struct uns_layout source; /* the matrix's elements in C order */
	enum uns_dtype dtype; /* of these */
	uint64_t rows, columns;
	bool inverses; /* the tensor is the scales' inverses, [block rows, block columns]; else the numbers */
};

static inline uint64_t uns_scaled_blocks(uint64_t n)
{
	return (n + UNS_SCALED_BLOCK - 1) / UNS_SCALED_BLOCK;
}

/* Elements [*first, *end) of the matrix are what elements [*first, *end) of the tensor are made of, but for scales. */
static inline void uns_scaled_needs(const struct uns_scaled *s, uint64_t *first, uint64_t *end)
{
	const uint64_t across = uns_scaled_blocks(s->columns), row = UNS_SCALED_BLOCK * s->columns;

	if (!s->inverses)
		return;
	*first = *first / across * row;
	*end = (*end + across - 1) / across * row;
	if (*end > s->rows * s->columns)
		*end = s->rows * s->columns;
}

/* The two tensors of a matrix with elements: the numbers, F8_E4M3, and their inverse scales, F32. `matrix` is of a
 * floating dtype of at least 2 bytes, and is written as its own. -EINVAL if it is no such matrix. Pure. */
int uns_scaled_make(const struct uns_catalog *cat, const struct uns_named_tensor *matrix, struct uns_arena *arena,
		    const struct uns_tensor **numbers, const struct uns_tensor **inverses, struct uns_err *err);

#endif
