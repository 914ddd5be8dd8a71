/* What is known of a tensor's CRC without reading its data. Known are the CRCs that were found on
 * purpose (crc_find.c, or an earlier mount), and those that can be combined from the CRCs that
 * containers recorded for the pieces. All others are served as 0.
 *
 * Once a CRC (or 0) was served for a tensor as some type, the same value is served for the life of
 * the backing, even if more is found out later: the kernel may have cached the page that holds it,
 * and a page that it asks for later must agree with that one. */
#include "engine/crc.h"

#include <stdlib.h>
#include <zlib.h>

#include "engine/engine.h"
#include "model/cover.h"

/* -- the memo: for each tensor a list of the types that it was asked for as. Lists only grow -- */

/* A tensor of the catalog. Only these have a memo; a whole file that is passed through is a tensor, too. */
static bool is_catalogs(const struct uns_backing *b, const struct uns_tensor *t)
{
	return t >= b->cat->tensors && t < b->cat->tensors + b->cat->n_tensors;
}

/* The memo of a catalog's tensor as this type, or NULL. make: made if it is not there; NULL = no memory. */
static struct uns_crc *memo_of(const struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, bool make)
{
	_Atomic(struct uns_crc *) *list = &b->crc[t - b->cat->tensors];
	struct uns_crc *first = atomic_load(list), *memo, *new = NULL;

	for (;;) {
		for (memo = first; memo && memo->out != out; memo = memo->next)
			;
		if (memo || !make) {
			free(new);
			return memo;
		}
		if (!new && !(new = calloc(1, sizeof(*new))))
			return NULL;
		new->out = out;
		new->next = first;
		if (atomic_compare_exchange_strong(list, &first, new))
			return new;
	}
}

int uns_crc_keep(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, uint32_t crc,
		 struct uns_err *err)
{
	struct uns_crc *memo;

	if (!is_catalogs(b, t))
		return 0;
	UNS_TRY_ALLOC(memo = memo_of(b, t, out, true), err);
	atomic_store(&memo->found, UNS_CRC_IS_SET | crc);
	atomic_fetch_add(&b->crc_changes, 1);
	return 0;
}

uint64_t uns_backing_crc_changes(const struct uns_backing *b)
{
	return atomic_load(&b->crc_changes);
}

/* -- the memo as bytes: 64-bit numbers, little-endian. The format and how many tensors the catalog has;
 *    then for each CRC the tensor's number, and the type in bits 63-32 with the CRC in bits 31-0 -- */

#define FORMAT (UINT64_C(2) << 56)

static void text_add_u64(struct uns_text *out, uint64_t v)
{
	unsigned char bytes[8];
	int i;

	for (i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(v >> (8 * i));
	uns_text_add(out, bytes, sizeof(bytes));
}

void uns_backing_crc_export(const struct uns_backing *b, struct uns_text *out)
{
	const struct uns_crc *memo;
	uint64_t found;
	size_t i;

	text_add_u64(out, FORMAT | b->cat->n_tensors);
	for (i = 0; i < b->cat->n_tensors; i++)
		for (memo = atomic_load(&b->crc[i]); memo; memo = memo->next) {
			found = atomic_load(&memo->found);
			if (!found)
				continue;
			text_add_u64(out, i);
			text_add_u64(out, (uint64_t)memo->out << 32 | (uint32_t)found);
		}
}

void uns_backing_crc_import(struct uns_backing *b, struct uns_span in)
{
	uint64_t n, tensor, crc;
	struct uns_crc *memo;

	if (!uns_take_u64le(&in, &n) || n != (FORMAT | b->cat->n_tensors) || uns_span_left(&in) % 16)
		return;
	while (uns_take_u64le(&in, &tensor) && uns_take_u64le(&in, &crc)) {
		if (tensor >= b->cat->n_tensors || crc >> 32 >= UNS_N_DTYPES)
			continue;
		memo = memo_of(b, &b->cat->tensors[tensor], (enum uns_dtype)(crc >> 32), true);
		if (memo)
			atomic_store(&memo->found, UNS_CRC_IS_SET | (uint32_t)crc);
	}
}

/* -- what containers recorded -- */

int uns_crc_recorded(const struct uns_gather *g, const struct uns_piece *piece, uint32_t *out, struct uns_err *err)
{
	struct uns_location at = { .crc32 = piece->crc32 };

	if (piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE)
		UNS_TRY(uns_locate(g->b, g->tensor, piece, NULL, &at, err));
	*out = at.crc32;
	return 0;
}

/* Pieces are sorted by position. Where each holds one range and has a recorded CRC, these combine
 * to the tensor's; replicas of what is covered already are left out. Else the result is 0. */
static int combine_pieces(const struct uns_gather *g, uint32_t *out, struct uns_err *err)
{
	size_t size = uns_dtype_size(g->tensor->dtype), i;
	struct uns_range range;
	uint32_t crc = 0, recorded;
	uint64_t at = 0;

	*out = 0;
	for (i = 0; i < g->n_pieces; i++) {
		if (!uns_piece_range(&g->tensor->shape, &g->piece[i], &range) || range.first > at)
			return 0;
		if (!range.count || range.first < at)
			continue;
		UNS_TRY(uns_crc_recorded(g, &g->piece[i], &recorded, err));
		if (!recorded)
			return 0;
		crc = at ? (uint32_t)crc32_combine64(crc, recorded, (z_off64_t)(range.count * size)) : recorded;
		at += range.count;
	}
	*out = crc;
	return 0;
}

/* -- looking up -- */

int uns_crc_look_up(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, uint32_t *crc, bool *known,
		    struct uns_err *err)
{
	const struct uns_crc *memo = is_catalogs(b, t) ? memo_of(b, t, out, false) : NULL;
	uint64_t found = memo ? atomic_load(&memo->found) : 0;
	struct uns_gather g = uns_gather_of(b, t);

	*known = found != 0;
	*crc = (uint32_t)found;
	if (found || out != t->dtype)
		return 0;
	UNS_TRY(uns_backing_resolve(b, t, err));
	UNS_TRY(combine_pieces(&g, crc, err));
	*known = *crc != 0;
	return *known ? uns_crc_keep(b, t, out, *crc, err) : 0;
}

int uns_backing_crc(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, uint32_t *crc,
		    struct uns_err *err)
{
	struct uns_crc *memo = is_catalogs(b, t) ? memo_of(b, t, out, true) : NULL;
	uint64_t served = memo ? atomic_load(&memo->served) : 0;
	bool known;

	if (!is_catalogs(b, t)) /* made for a view: what its pieces record never changes */
		return uns_crc_look_up(b, t, out, crc, &known, err);
	UNS_TRY_ALLOC(memo, err);
	if (!served) {
		UNS_TRY(uns_crc_look_up(b, t, out, crc, &known, err));
		if (atomic_compare_exchange_strong(&memo->served, &served, UNS_CRC_IS_SET | *crc)) {
			uns_count(known ? &b->engine->count.crc_exact : &b->engine->count.crc_zero, 1);
			return 0;
		}
	}
	*crc = (uint32_t)served;
	return 0;
}
