/* Are two tensors equal? Their CRCs decide where both are known, else the bytes. */
#include "engine/engine.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/crc.h"
#include "model/cover.h"

enum { COMPARE_BYTES = 1 << 20 };

enum answer { NOT_RECORDED, EQUAL, DIFFERENT };

/* By the pieces' CRCs, if both tensors are cut alike: of those cut into columns only the pieces have CRCs. What is
 * computed has no pieces. */
static int compare_pieces(const struct uns_gather *a, const struct uns_gather *b, enum answer *out, struct uns_err *err)
{
	uint32_t crc_a, crc_b;
	size_t i;

	*out = NOT_RECORDED;
	if (!a->n_pieces || a->n_pieces != b->n_pieces || !uns_shape_equal(&a->tensor->shape, &b->tensor->shape))
		return 0;
	for (i = 0; i < a->n_pieces; i++)
		if (!uns_same_elements(&a->piece[i], &b->piece[i]))
			return 0;
	*out = EQUAL;
	for (i = 0; i < a->n_pieces && *out != NOT_RECORDED; i++) {
		UNS_TRY(uns_crc_recorded(a, &a->piece[i], &crc_a, err));
		UNS_TRY(uns_crc_recorded(b, &b->piece[i], &crc_b, err));
		if (!crc_a || !crc_b)
			*out = NOT_RECORDED;
		else if (crc_a != crc_b)
			*out = DIFFERENT;
	}
	return 0;
}

static int compare_bytes(const struct uns_gather *a, const struct uns_gather *b, bool *equal, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(2 * (size_t)COMPARE_BYTES);
	uint64_t size = uns_shape_elems(&a->tensor->shape) * uns_dtype_size(a->tensor->dtype);
	uint64_t at;
	size_t n;

	UNS_TRY_ALLOC(buf, err);
	*equal = true;
	for (at = 0; at < size && *equal; at += n) {
		n = (size_t)uns_u64_min(COMPARE_BYTES, size - at);
		UNS_TRY(uns_gather_bytes(a, buf, at, n, err));
		UNS_TRY(uns_gather_bytes(b, buf + COMPARE_BYTES, at, n, err));
		*equal = memcmp(buf, buf + COMPARE_BYTES, n) == 0;
	}
	return 0;
}

int uns_backing_equal(struct uns_backing *backing, const struct uns_tensor *a, const struct uns_tensor *b, bool *equal,
		      const char **how, struct uns_err *err)
{
	struct uns_gather ga = uns_gather_of(backing, a), gb = uns_gather_of(backing, b);
	bool known_a, known_b;
	uint32_t crc_a, crc_b;
	enum answer known;

	if (a->dtype != b->dtype || uns_shape_elems(&a->shape) != uns_shape_elems(&b->shape))
		return uns_fail(err, -EINVAL, "tensors %s and %s differ in type or size", a->key, b->key);
	if (how)
		*how = "recorded CRCs";
	UNS_TRY(uns_crc_look_up(backing, ga.tensor, a->dtype, &crc_a, &known_a, err));
	UNS_TRY(uns_crc_look_up(backing, gb.tensor, b->dtype, &crc_b, &known_b, err));
	known = !known_a || !known_b ? NOT_RECORDED : crc_a == crc_b ? EQUAL : DIFFERENT;
	if (known == NOT_RECORDED)
		UNS_TRY(compare_pieces(&ga, &gb, &known, err));
	*equal = known == EQUAL;
	if (known != NOT_RECORDED)
		return 0;
	if (how)
		*how = "comparison";
	return compare_bytes(&ga, &gb, equal, err);
}
