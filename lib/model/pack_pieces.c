#include "model/pack_pieces.h"

#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "model/cover.h"

/* Bytes that claim more pieces than that for each of them are no packed catalog: memory is not claimed for nothing. A
 * tensor is some fifty bytes with its names. */
enum { MAX_PIECES = 1 << 27, MAX_PIECES_A_BYTE = 1024 };

/* -- how many -- */

int pack_pieces_begin(struct pack *p, size_t n, struct uns_err *err)
{
	n = (size_t)pack_below(p, n, MAX_PIECES);
	p->n_pieces = n;
	p->at = p->out ? p->out->len : 0;
	p->bad |= !p->out && n / MAX_PIECES_A_BYTE > uns_span_left(&p->in);
	UNS_TRY(pack_result(p, err));
	return p->out ? 0 : uns_catalog_expect_pieces(p->cat, n, err);
}

int pack_pieces_end(struct pack *p, struct uns_err *err)
{
	if (p->out)
		p->bad |= p->n_pieces / MAX_PIECES_A_BYTE > p->out->len - p->at;
	else
		p->bad |= p->cat->n_pieces != p->n_pieces;
	return pack_result(p, err);
}

/* -- columns -- */

enum column { FORM, FILE_NUMBER, RANK, LENGTH, OFFSET, CRC, N_COLUMNS };

/* FORM */
enum { IS_RANGE = 1, CONTAINER = 2, IS_ZSTD = 4, HAS_MORE = 8, N_FORMS = 16 };

static bool has_more(const struct uns_piece *piece)
{
	return uns_piece_is_strided(piece) || uns_piece_part(piece);
}

static inline uint64_t get(const struct uns_piece *piece, enum column c)
{
	switch (c) {
	case FORM:
		return (piece->kind == UNS_PIECE_RANGE ? IS_RANGE : 0) | (uint64_t)piece->container * CONTAINER |
		       (piece->codec == UNS_CODEC_ZSTD ? IS_ZSTD : 0) | (has_more(piece) ? HAS_MORE : 0);
	case FILE_NUMBER:
		return piece->file;
	case RANK:
		return (uint64_t)(int64_t)piece->rank;
	case LENGTH:
		return piece->length_bytes;
	case OFFSET:
		return piece->offset_bytes;
	default:
		return piece->crc32;
	}
}

/* In the place of what strides or a part will be, until they are read. */
static const uint64_t to_come[1];

static inline void set(struct pack *p, struct uns_piece *piece, enum column c, uint64_t v)
{
	switch (c) {
	case FORM:
		p->bad |= v >= N_FORMS;
		piece->kind = v & IS_RANGE ? UNS_PIECE_RANGE : UNS_PIECE_BOX;
		piece->container = v & CONTAINER ? UNS_TORCH_ITEM : UNS_RAW;
		piece->codec = v & IS_ZSTD ? UNS_CODEC_ZSTD : UNS_CODEC_NONE;
		piece->stride_elems = v & HAS_MORE ? to_come : NULL;
		return;
	case FILE_NUMBER:
		p->bad |= v >= p->cat->n_files;
		piece->file = (uint32_t)v;
		return;
	case RANK:
		p->bad |= (int64_t)v < INT32_MIN || (int64_t)v > INT32_MAX;
		piece->rank = (int32_t)v;
		return;
	case LENGTH:
		piece->length_bytes = v;
		return;
	case OFFSET:
		piece->offset_bytes = v;
		return;
	default:
		p->bad |= v > UINT32_MAX;
		piece->crc32 = (uint32_t)v;
		return;
	}
}

struct tensor_pieces {
	struct uns_piece *piece; /* written: not changed */
	const struct uns_piece *like; /* NULL = none */
	size_t n;
};

static inline uint64_t expected(const struct tensor_pieces *t, size_t k, enum column c)
{
	if (t->like)
		return get(&t->like[k], c);
	if (!k)
		return 0;
	return get(&t->piece[k - 1], c) + (c == FILE_NUMBER || c == RANK);
}

static void write_runs(struct pack *p, const uint64_t *v, size_t n)
{
	size_t k, end;

	for (k = 0; k < n; k = end) {
		for (end = k + 1; end < n && v[end] == v[k]; end++)
			;
		pack_i64(p, (int64_t)v[k]);
		pack_u64(p, end - k - 1);
	}
}

static void read_runs(struct pack *p, uint64_t *v, size_t n)
{
	uint64_t is;
	size_t k = 0, end;

	while (k < n && !p->bad) {
		is = (uint64_t)pack_i64(p, 0);
		end = k + 1 + (size_t)pack_below(p, 0, n - k);
		while (k < end)
			v[k++] = is;
	}
}

static inline void column(struct pack *p, const struct tensor_pieces *t, enum column c)
{
	uint64_t *v = p->column;
	size_t k;

	for (k = 0; p->out && k < t->n; k++)
		v[k] = get(&t->piece[k], c) - expected(t, k, c);
	if (p->out)
		write_runs(p, v, t->n);
	else
		read_runs(p, v, t->n);
	for (k = 0; !p->out && !p->bad && k < t->n; k++)
		set(p, &t->piece[k], c, v[k] + expected(t, k, c));
}

/* Called with constants, so that the compiler makes a loop of each. */
static void columns(struct pack *p, const struct tensor_pieces *t)
{
	column(p, t, FORM);
	column(p, t, FILE_NUMBER);
	column(p, t, RANK);
	column(p, t, LENGTH);
	column(p, t, OFFSET);
	column(p, t, CRC);
}

/* -- ranges and boxes -- */

static void range(struct pack *p, struct uns_range *r, struct uns_range *before)
{
	const uint64_t expected_first = before->first + before->count;

	r->first = expected_first + (uint64_t)pack_i64(p, (int64_t)(r->first - expected_first));
	r->count = before->count + (uint64_t)pack_i64(p, (int64_t)(r->count - before->count));
	*before = *r;
}

static const struct uns_box *box(struct pack *p, const struct uns_box *of)
{
	struct uns_box own = p->out ? *of : (struct uns_box){ 0 };
	const struct uns_box *kept;

	own.n = (uint32_t)pack_below(p, own.n, UNS_MAX_DIMS + 1);
	pack_dims(p, own.lo, own.n);
	pack_dims(p, own.len, own.n);
	if (p->out)
		return of;
	kept = uns_box_keep(&p->cat->boxes, &p->cat->arena, &own);
	p->no_memory |= !kept;
	p->bad |= !kept;
	return kept;
}

/* While reading, a piece's kind is known. */
static void own_boxes(struct pack *p, const struct tensor_pieces *t)
{
	struct uns_range before = { 0, 0 }, one;
	struct uns_piece *piece = t->piece, *end = piece + t->n;
	const struct uns_box *kept;

	for (; piece < end && !p->bad; piece++) {
		if (piece->kind == UNS_PIECE_RANGE) {
			one = p->out ? piece->range : (struct uns_range){ 0, 0 };
			range(p, &one, &before);
			if (!p->out)
				piece->range = one;
			continue;
		}
		kept = box(p, p->out ? piece->box : NULL);
		if (!p->out)
			piece->box = kept;
	}
}

static void same_boxes(struct pack *p, const struct tensor_pieces *t)
{
	size_t k;

	for (k = 0; k < t->n; k++) {
		p->bad |= t->piece[k].kind != UNS_PIECE_BOX || t->like[k].kind != UNS_PIECE_BOX;
		t->piece[k].box = t->like[k].box;
	}
}

static bool is_cut_alike(const struct uns_piece *a, const struct uns_piece *b, size_t n)
{
	const struct uns_piece *end = a + n;

	for (; a < end; a++, b++)
		if (a->kind != UNS_PIECE_BOX || b->kind != UNS_PIECE_BOX ||
		    (a->box != b->box && !uns_box_equal(a->box, b->box)))
			return false;
	return true;
}

/* The cut of the shape and number of pieces of tensor number `of`, which may be the first. NULL = out of memory. */
static struct pack_cut *cut_find(struct pack *p, size_t of)
{
	const struct uns_tensor *t = &p->cat->tensors[of], *last;
	struct pack_cut *cut;
	char shape[256];
	const char *key;
	unsigned i;

	for (i = 0; i < PACK_RECENT_CUTS && p->cut[i]; i++) {
		last = &p->cat->tensors[p->cut[i]->last];
		if (last->n_pieces == t->n_pieces && uns_shape_equal(&last->shape, &t->shape))
			return p->cut[i];
	}
	key = uns_arena_printf(&p->scratch, "%u %s", t->n_pieces, uns_shape_text(&t->shape, shape, sizeof(shape)));
	cut = uns_map_get(&p->cuts, key);
	if (!cut) {
		cut = UNS_NEW(&p->scratch, struct pack_cut);
		if (!uns_map_put(&p->cuts, key, cut, NULL)) {
			p->no_memory = true;
			return NULL;
		}
		cut->last = of;
	}
	p->cut[p->n_cuts++ % PACK_RECENT_CUTS] = cut;
	return cut;
}

/* The last tensor before number i that has as many pieces, and of which nothing else is known; i = none. */
static size_t last_of_shape(struct pack *p, size_t i)
{
	const struct uns_tensor *t = p->cat->tensors;
	struct pack_cut *cut = cut_find(p, i);
	size_t before;

	if (!cut)
		return i;
	before = cut->last;
	cut->last = i;
	return t[before].n_pieces == t[i].n_pieces ? before : i;
}

/* The tensor before number i that was cut alike; NULL = none is known. */
static const struct uns_tensor *cut_alike(struct pack *p, size_t i, size_t n)
{
	const struct uns_tensor *t = p->cat->tensors;
	size_t of = i;

	if (p->out) {
		of = last_of_shape(p, i);
		if (of < i && !is_cut_alike(p->cat->pieces + t[of].first_piece, p->cat->pieces + t[i].first_piece, n))
			of = i;
	}
	of = i - (size_t)pack_below(p, i - of, (uint64_t)i + 1);
	p->bad |= t[of].n_pieces != n && of < i;
	return of < i && !p->bad ? &t[of] : NULL;
}

/* -- strides and parts -- */

static void strides(struct pack *p, struct uns_piece *piece)
{
	uint32_t n = piece->kind == UNS_PIECE_BOX ? piece->box->n : 0;
	uint64_t stride[UNS_MAX_DIMS] = { 0 }, *own;

	if (p->out)
		memcpy(stride, piece->stride_elems, n * sizeof(*stride));
	pack_dims(p, stride, n);
	own = p->out ? NULL : pack_room(p, n, sizeof(*own));
	if (!own)
		return;
	memcpy(own, stride, n * sizeof(*own));
	piece->stride_elems = own;
}

static void part(struct pack *p, struct uns_piece *piece)
{
	struct uns_item_part of = { 0 }, *own;

	if (p->out)
		of = *piece->part;
	of.first_elem = pack_u64(p, of.first_elem);
	of.n_elems = pack_u64(p, of.n_elems);
	own = p->out ? NULL : pack_room(p, 1, sizeof(*own));
	if (!own)
		return;
	*own = of;
	piece->part = own;
}

static void more(struct pack *p, const struct tensor_pieces *t)
{
	struct uns_piece *piece = t->piece, *end = piece + t->n;

	for (; piece < end && !p->bad; piece++) {
		if (!has_more(piece))
			continue;
		if (piece->container == UNS_RAW)
			strides(p, piece);
		else
			part(p, piece);
	}
}

/* -- what is proven -- */

/* What uns_catalog_seal and uns_cover_check would look at beside the boxes. */
static bool extents_fit(const struct uns_catalog *cat, const struct uns_tensor *t, const struct tensor_pieces *of)
{
	const struct uns_piece *piece = of->piece, *end = piece + of->n;

	for (; piece < end; piece++) {
		if (!uns_piece_is_there(cat, piece))
			return false;
		if ((piece->container == UNS_RAW || piece->part) &&
		    uns_piece_check(&t->shape, t->dtype, piece, NULL) < 0)
			return false;
	}
	return true;
}

/* alike: the tensor that was cut alike; NULL = none. */
static bool is_proven(const struct uns_catalog *cat, const struct uns_tensor *t, const struct tensor_pieces *of,
		      const struct uns_tensor *alike)
{
	if (!alike || !uns_catalog_is_proven(cat, alike) || !uns_shape_equal(&alike->shape, &t->shape))
		return uns_cover_is_plain(cat, t);
	return uns_shape_check(&t->shape, t->dtype, NULL) == 0 && extents_fit(cat, t, of);
}

/* -- */

int pack_pieces(struct pack *p, size_t i, struct uns_err *err)
{
	struct uns_catalog *cat = p->cat;
	struct uns_tensor *t = &cat->tensors[i];
	struct tensor_pieces of = { .n = t->n_pieces };
	const struct uns_tensor *alike;
	bool proven = false;

	of.n = (size_t)pack_below(p, of.n, p->out ? UINT64_MAX : p->n_pieces - cat->n_pieces + 1);
	if (of.n && !p->bad) {
		alike = cut_alike(p, i, of.n);
		of.like = alike ? cat->pieces + alike->first_piece : NULL;
		UNS_TRY(pack_result(p, err));
		of.piece = p->out ? cat->pieces + t->first_piece : uns_catalog_extend(cat, of.n);
		while (p->cap_column < of.n)
			if (!UNS_HEAP_ROOM(p->column, p->cap_column, p->cap_column))
				return uns_oom(err);
		columns(p, &of);
		if (of.like && !p->out && !p->bad)
			same_boxes(p, &of);
		else if (!of.like)
			own_boxes(p, &of);
		more(p, &of);
		proven = !p->out && !p->bad && is_proven(cat, t, &of, alike);
	}
	UNS_TRY(pack_result(p, err));
	return p->out ? 0 : uns_catalog_note(cat, proven, err);
}
