/* Computes where a slice's pieces are in the parameter, and back: boxes in boxes. That the slices cover the parameter
 * is proven in parallel/slices.c. */
#include "parallel/slice_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"

/* -- a slice's pieces as the parameter's -- */

/* Where the elements of a slice, or of a parameter, are in a file. */
struct place {
	const struct uns_piece *piece;
	struct uns_shape shape;        /* whose flat elements those of a range are */
	const uint64_t *stride;        /* of the shape, or of the piece's box */
	const uint64_t *lo;            /* the box's first index; NULL = 0 */
	uint64_t base_bytes;           /* of the element at lo; modulo 2^64 */
	uint64_t elem_bytes;
};

/* *stride: room for the piece's strides, in the arena of the result. */
static struct place place_of(const struct uns_piece *piece, const struct uns_shape *shape, enum uns_dtype dtype,
			     uint64_t *stride)
{
	struct place p = { .piece = piece,
			   .shape = *shape,
			   .stride = stride,
			   .base_bytes = piece->offset_bytes,
			   .elem_bytes = uns_dtype_size(dtype) };

	if (piece->kind == UNS_PIECE_RANGE) {
		uns_shape_strides(shape, stride);
		p.base_bytes -= piece->range.first * p.elem_bytes;
		return p;
	}
	p.lo = piece->box->lo;
	memcpy(p.shape.dim, piece->box->len, sizeof(p.shape.dim));
	uns_shape_strides(&p.shape, stride);
	if (piece->stride_elems)
		memcpy(stride, piece->stride_elems, shape->n * sizeof(*stride));
	return p;
}

/* The box `part` of the place, which is `to` of another tensor, as a piece of that. `to` is borrowed. */
static struct uns_piece piece_of(const struct place *p, const struct uns_box *part, const struct uns_box *to)
{
	struct uns_piece out = *p->piece;
	uint64_t reach = 1;
	uint32_t d;

	out.kind = UNS_PIECE_BOX;
	out.box = to;
	out.offset_bytes = p->base_bytes;
	for (d = 0; d < part->n; d++) {
		out.offset_bytes += (part->lo[d] - (p->lo ? p->lo[d] : 0)) * p->stride[d] * p->elem_bytes;
		reach += (part->len[d] - 1) * p->stride[d];
	}
	out.length_bytes = reach * p->elem_bytes;
	out.stride_elems = uns_strides_are_c_order(p->stride, part->len, part->n) ? NULL : p->stride;
	return out;
}

/* `part` of box `from` of one tensor is this box of the other, which has `from` as `to`. */
static struct uns_box moved_box(const struct uns_box *part, const struct uns_box *from, const struct uns_box *to)
{
	struct uns_box out = *part;
	uint32_t d;

	for (d = 0; d < part->n; d++)
		out.lo[d] = to->lo[d] + (part->lo[d] - from->lo[d]);
	return out;
}

/* The boxes that a piece is: call with *at = 0 until false. */
static bool next_box(const struct uns_piece *piece, const struct uns_shape *shape, uint64_t *at, struct uns_box *out)
{
	const uint64_t n = uns_piece_elems(piece);

	if (*at >= n)
		return false;
	if (piece->kind == UNS_PIECE_RANGE) {
		*at += uns_box_at(shape, piece->range.first + *at, piece->range.first + n, out);
		return true;
	}
	*out = *piece->box;
	*at = n;
	return true;
}

int uns_zero_slice_add(struct uns_catalog *cat, const struct uns_zero_slice *slice, const struct uns_piece *piece,
		       enum uns_dtype dtype, struct uns_err *err)
{
	struct uns_box box, part, to;
	struct uns_piece out;
	struct place place;
	uint64_t *stride, at = 0;
	size_t i;

	if (!slice)
		return uns_catalog_add_piece(cat, piece, err);
	UNS_TRY_ALLOC(stride = UNS_NEW_N(&cat->arena, uint64_t, UNS_MAX_DIMS), err);
	place = place_of(piece, &slice->shape, dtype, stride);
	while (next_box(piece, &slice->shape, &at, &box))
		for (i = 0; i < slice->n_own; i++) {
			const struct uns_zero_block *b = &slice->block[i];

			if (!uns_box_intersect(&box, &b->slice, &part))
				continue;
			to = moved_box(&part, &b->slice, &b->whole);
			out = piece_of(&place, &part, &to);
			UNS_TRY(uns_catalog_add_piece(cat, &out, err));
		}
	return 0;
}

/* -- a parameter's pieces as a slice's -- */

struct pieces {
	struct uns_piece *v;
	size_t n, cap;
	struct uns_shape shape;
};

static bool add_cut_piece(struct pieces *out, const struct uns_piece *piece, const struct uns_tensor *whole,
			  const struct uns_zero_slice *slice, struct uns_arena *arena)
{
	uint64_t *stride = UNS_NEW_N(arena, uint64_t, UNS_MAX_DIMS), at = 0;
	struct uns_box box, part, *to;
	struct place place;
	size_t i;

	if (!stride)
		return false;
	place = place_of(piece, &whole->shape, whole->dtype, stride);
	while (next_box(piece, &whole->shape, &at, &box))
		for (i = 0; i < slice->n; i++) {
			const struct uns_zero_block *b = &slice->block[i];

			if (!uns_box_intersect(&box, &b->whole, &part))
				continue;
			to = UNS_NEW(arena, struct uns_box);
			if (!to || !UNS_ARENA_ROOM(arena, out->v, out->n, out->cap))
				return false;
			*to = moved_box(&part, &b->whole, &b->slice);
			out->v[out->n++] = piece_of(&place, &part, to);
		}
	return true;
}

static int by_place(const void *a, const void *b, void *shape)
{
	uint64_t x = uns_piece_first(shape, a), y = uns_piece_first(shape, b);

	return x < y ? -1 : x > y;
}

const struct uns_tensor *uns_zero_slice_of(const struct uns_catalog *cat, const struct uns_tensor *whole,
					   const struct uns_zero_slice *slice, struct uns_arena *arena)
{
	struct pieces pieces = { .shape = slice->shape };
	struct uns_tensor *t = UNS_NEW(arena, struct uns_tensor);
	const struct uns_tensor *of = uns_tensor_with_bytes(cat, whole);
	size_t i;

	if (!t)
		return NULL;
	for (i = 0; i < of->n_pieces; i++)
		if (!add_cut_piece(&pieces, &cat->pieces[of->first_piece + i], of, slice, arena))
			return NULL;
	if (pieces.n)
		qsort_r(pieces.v, pieces.n, sizeof(*pieces.v), by_place, &pieces.shape);
	*t = *whole;
	t->dtype = of->dtype;
	t->shape = slice->shape;
	t->own = pieces.v;
	t->n_pieces = (uint32_t)pieces.n;
	t->alias_of = UNS_NONE;
	return t;
}
