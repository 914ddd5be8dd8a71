#include "engine/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/search.h"

struct uns_places {
	uint64_t n, n_runs;
	const uint8_t *end, *place, *crc; /* crc: NULL = none */
	uint8_t bytes[]; /* where these point to */
};

static bool take_arrays(struct uns_span in, struct uns_places *a)
{
	uint64_t i, n = 0, end;

	*a = (struct uns_places){ 0 };
	if (!uns_take_u64le(&in, &a->n) || !uns_take_u64le(&in, &a->n_runs) || a->n > UINT32_MAX || a->n_runs > a->n ||
	    !uns_span_take(&in, a->n_runs * 4, &a->end) || !uns_span_take(&in, a->n_runs * 8, &a->place) ||
	    (uns_span_left(&in) && !uns_span_take(&in, a->n * 4, &a->crc)) || uns_span_left(&in))
		return false;
	for (i = 0; i < a->n_runs; i++, n = end) {
		end = uns_le(a->end + 4 * i, 4);
		if (end <= n)
			return false;
	}
	return n == a->n;
}

int uns_places_check(const struct uns_catalog *cat, struct uns_span in, struct uns_err *err)
{
	struct uns_places a;

	return take_arrays(in, &a) && a.n == cat->n_pieces
		       ? 0
		       : uns_fail(err, -EBADMSG, "the places of its items do not fit them");
}

int uns_places_import(struct uns_backing *b, struct uns_span in, struct uns_err *err)
{
	const size_t n = uns_span_left(&in);
	struct uns_places *own;

	if (!n)
		return 0;
	UNS_TRY_ALLOC(own = malloc(sizeof(*own) + n), err);
	take_arrays(uns_span_of(memcpy(own->bytes, in.p, n), n), own);
	b->places = own;
	b->places_bytes = sizeof(*own) + n;
	return 0;
}

/* The tensor of piece number i; NULL = of none. */
static const struct uns_tensor *tensor_of(const struct uns_catalog *cat, size_t i)
{
	size_t k;

	UNS_SEARCH(k, cat->n_tensors, (size_t)cat->tensors[k].first_piece + cat->tensors[k].n_pieces <= i);
	return k < cat->n_tensors && cat->tensors[k].first_piece <= i ? &cat->tensors[k] : NULL;
}

bool uns_places_find(const struct uns_backing *b, size_t i, struct uns_location *out)
{
	const struct uns_piece *piece = &b->cat->pieces[i];
	const struct uns_places *a = b->places;
	const struct uns_tensor *t;
	uint64_t place, bytes;
	size_t k;

	if (!a || i >= a->n || !uns_piece_is_item(piece))
		return false;
	UNS_SEARCH(k, (size_t)a->n_runs, uns_le(a->end + 4 * k, 4) <= i);
	place = uns_le(a->place + 8 * k, 8);
	t = tensor_of(b->cat, i);
	if (!place || !t || !uns_u64_mul(uns_piece_elems(piece), uns_dtype_size(t->dtype), &bytes) ||
	    !uns_inside(place - 1, bytes, piece->length_bytes))
		return false;
	*out = (struct uns_location){ .dense = true,
				      .data_bytes = piece->offset_bytes + place - 1,
				      .crc32 = a->crc ? (uint32_t)uns_le(a->crc + 4 * i, 4) : 0 };
	return true;
}
