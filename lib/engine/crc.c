/* What is known of a tensor's CRC without reading it, and finding it out by reading. */
#include "engine/crc.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum { CRC_READ_BYTES = 1 << 20 };

/* A catalog's tensor has its number; a file passed through as a whole is a tensor of its own. */
static bool is_numbered(const struct uns_backing *b, const struct uns_tensor *t)
{
	return t >= b->cat->tensors && t < b->cat->tensors + b->cat->n_tensors;
}

/* -- remembered: one number a tensor, for the type it was last asked for -- */

#define KNOWN (UINT64_C(1) << 63)

static bool memo_get(const struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		     uint32_t *crc)
{
	uint64_t v = is_numbered(b, t) ? atomic_load(&b->crc[t - b->cat->tensors]) : 0;

	*crc = (uint32_t)v;
	return (v & KNOWN) && ((v >> 32) & 0xff) == (uint64_t)out;
}

static void memo_put(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		     uint32_t crc)
{
	if (!is_numbered(b, t))
		return;
	atomic_store(&b->crc[t - b->cat->tensors], KNOWN | (uint64_t)out << 32 | crc);
	atomic_fetch_add(&b->crc_changes, 1);
}

uint64_t uns_backing_crc_changes(const struct uns_backing *b)
{
	return atomic_load(&b->crc_changes);
}

/* The number of tensors, then one 64-bit number for each; all little-endian. */
static void add_u64(struct uns_text *out, uint64_t v)
{
	unsigned char bytes[8];
	int i;

	for (i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(v >> (8 * i));
	uns_text_add(out, bytes, sizeof(bytes));
}

void uns_backing_crc_export(const struct uns_backing *b, struct uns_text *out)
{
	size_t i;

	add_u64(out, b->cat->n_tensors);
	for (i = 0; i < b->cat->n_tensors; i++)
		add_u64(out, atomic_load(&b->crc[i]));
}

void uns_backing_crc_import(struct uns_backing *b, struct uns_span in)
{
	uint64_t n, v;
	size_t i;

	if (!uns_take_u64le(&in, &n) || n != b->cat->n_tensors || uns_span_left(&in) != 8 * n)
		return;
	for (i = 0; i < n && uns_take_u64le(&in, &v); i++)
		if ((v & KNOWN) && ((v >> 32) & 0xff) < UNS_N_DTYPES)
			atomic_store(&b->crc[i], v);
}

/* -- recorded -- */

int uns_crc_recorded(const struct uns_gather *g, const struct uns_piece *piece, uint32_t *out,
		     struct uns_err *err)
{
	struct uns_spot spot = { .crc32 = piece->crc32 };

	if (piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE)
		UNS_TRY(uns_spot_find(g->b, g->tensor, piece, NULL, &spot, err));
	*out = spot.crc32;
	return 0;
}

/* The stretch of the flattened tensor that a piece is, where it is one. */
static bool one_run(const struct uns_gather *g, const struct uns_piece *piece,
		    struct uns_range *out)
{
	struct uns_runs runs;

	if (piece->kind == UNS_PIECE_RANGE) {
		*out = piece->range;
		return true;
	}
	runs = uns_runs_of_box(&piece->box, &g->tensor->shape);
	*out = (struct uns_range){ .first = runs.n ? uns_runs_at(&runs, 0) : 0,
				   .count = runs.n ? runs.run_elems : 0 };
	return runs.n <= 1;
}

/* Pieces are sorted by position: records in order add up, a replica of what is covered already is
 * passed over, anything else is not free. */
static int combine(const struct uns_gather *g, uint32_t *crc, struct uns_err *err)
{
	size_t size = uns_dtype_size(g->tensor->dtype), i;
	struct uns_range run;
	uint64_t at = 0;
	uint32_t piece;

	*crc = 0;
	for (i = 0; i < g->n_pieces; i++) {
		if (!one_run(g, &g->piece[i], &run) || run.first > at) {
			*crc = 0;
			return 0;
		}
		if (!run.count || run.first < at)
			continue;
		UNS_TRY(uns_crc_recorded(g, &g->piece[i], &piece, err));
		if (!piece) {
			*crc = 0;
			return 0;
		}
		*crc = at ? (uint32_t)crc32_combine64(*crc, piece, (z_off64_t)(run.count * size)) :
			    piece;
		at += run.count;
	}
	return 0;
}

bool uns_crc_wanted(const struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out)
{
	uint32_t unused;

	return is_numbered(b, t) && !memo_get(b, t, out, &unused);
}

void uns_crc_learn(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		   uint32_t crc)
{
	memo_put(b, t, out, crc);
}

int uns_crc_find(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		 uint32_t *crc, bool *known, struct uns_err *err)
{
	struct uns_gather g = uns_gather_of(b, t);

	*known = memo_get(b, t, out, crc);
	if (*known)
		return 0;
	*crc = 0;
	if (out != t->dtype)
		return 0;
	UNS_TRY(uns_backing_resolve(b, t, err));
	UNS_TRY(combine(&g, crc, err));
	*known = *crc != 0;
	if (*known)
		memo_put(b, t, out, *crc);
	return 0;
}

/* -- given out -- */

/* The first answer is the answer. */
static uint32_t give(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		     uint32_t crc, bool known)
{
	_Atomic uint64_t *given;
	uint64_t mine = KNOWN | (uint64_t)out << 32 | crc, v = 0;

	if (!is_numbered(b, t))
		return crc;
	given = &b->crc_given[t - b->cat->tensors];
	if (atomic_compare_exchange_strong(given, &v, mine)) {
		uns_count(known ? &b->engine->count.crc_exact : &b->engine->count.crc_zero, 1);
		return crc;
	}
	return ((v >> 32) & 0xff) == (uint64_t)out ? (uint32_t)v : crc;
}

static bool was_given(const struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		      uint32_t *crc)
{
	uint64_t v = is_numbered(b, t) ? atomic_load(&b->crc_given[t - b->cat->tensors]) : 0;

	*crc = (uint32_t)v;
	return (v & KNOWN) && ((v >> 32) & 0xff) == (uint64_t)out;
}

int uns_backing_crc(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		    uint32_t *crc, struct uns_err *err)
{
	bool known;

	if (was_given(b, t, out, crc))
		return 0;
	UNS_TRY(uns_crc_find(b, t, out, crc, &known, err));
	if (!known && b->engine->crc_exact) {
		UNS_TRY(uns_backing_crc_exact(b, t, out, crc, err));
		known = true;
	}
	*crc = give(b, t, out, *crc, known);
	return 0;
}

/* -- read -- */

struct uns_layout uns_crc_layout(const struct uns_backing *b, const struct uns_tensor *t,
				 enum uns_dtype out, struct uns_segment *segment)
{
	*segment = (struct uns_segment){ .from = UNS_FROM_PIECES, .tensor = t, .out = out };
	segment->len_bytes = uns_shape_elems(&t->shape) * uns_dtype_size(out);
	return (struct uns_layout){ .catalog = b->cat,
				    .segment = segment,
				    .n = 1,
				    .size_bytes = segment->len_bytes };
}

int uns_backing_crc_exact(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
			  uint32_t *crc, struct uns_err *err)
{
	struct uns_segment segment;
	struct uns_layout whole = uns_crc_layout(b, t, out, &segment);
	UNS_CLEANUP(uns_free_p) uint8_t *buf = NULL;
	uint64_t at;
	bool known;
	ssize_t got;

	UNS_TRY(uns_crc_find(b, t, out, crc, &known, err));
	if (known)
		return 0;
	buf = malloc(CRC_READ_BYTES);
	if (!buf)
		return uns_oom(err);
	for (at = 0; at < whole.size_bytes; at += (uint64_t)got) {
		got = uns_read(b, &whole, buf, CRC_READ_BYTES, at, err);
		if (got < 0)
			return (int)got;
		*crc = (uint32_t)crc32_z(*crc, buf, (z_size_t)got);
	}
	memo_put(b, t, out, *crc);
	return 0;
}
