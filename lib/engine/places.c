#include "engine/places.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/resolve.h"

static bool is_item(const struct uns_piece *piece)
{
	return piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE;
}

static size_t count_items(const struct uns_catalog *cat)
{
	size_t i, n = 0;

	for (i = 0; i < cat->n_pieces; i++)
		n += is_item(&cat->pieces[i]);
	return n;
}

/* -- writing -- */

static int resolve_all(struct uns_backing *b, const struct uns_stop *stop, struct uns_err *err)
{
	const struct uns_tensor *t = b->cat->tensors, *end = t + b->cat->n_tensors;
	struct uns_err why;
	int code;

	for (; t < end; t++) {
		if (stop && stop->asked(stop->ctx))
			return uns_fail(err, -EINTR, "interrupted");
		why = (struct uns_err){ 0 };
		code = uns_backing_resolve(b, t, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
	}
	return 0;
}

int uns_places_export(struct uns_backing *b, const struct uns_stop *stop, struct uns_text *out, struct uns_err *err)
{
	const struct uns_piece *piece = b->cat->pieces, *end = piece + b->cat->n_pieces;
	UNS_CLEANUP(uns_text_fini) struct uns_text crcs = UNS_TEXT_INIT;
	struct uns_location at;
	bool known;

	UNS_TRY(resolve_all(b, stop, err));
	uns_text_le(out, count_items(b->cat), 8);
	for (; piece < end; piece++) {
		if (!is_item(piece))
			continue;
		known = uns_location_known(b, piece, &at) && at.dense;
		uns_text_le(out, known ? 1 + at.data_bytes - piece->offset_bytes : 0, 8);
		uns_text_le(&crcs, known ? at.crc32 : 0, 4);
	}
	uns_text_add(out, crcs.p, crcs.len);
	return out->failed || crcs.failed ? uns_oom(err) : 0;
}

/* -- reading -- */

/* Both arrays; false = there are not as many as that. */
static bool take_arrays(struct uns_span in, size_t n, const uint8_t **at, const uint8_t **crc)
{
	uint64_t count;

	return uns_take_u64le(&in, &count) && count == n && uns_span_left(&in) / 12 == n &&
	       uns_span_left(&in) % 12 == 0 && uns_span_take(&in, n * 8, at) && uns_span_take(&in, n * 4, crc);
}

static int fail_places(struct uns_err *err)
{
	return uns_fail(err, -EBADMSG, "the places of its items do not fit them");
}

int uns_places_check(const struct uns_catalog *cat, struct uns_span in, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_piece *piece, *last;
	const uint8_t *at, *crc;
	uint64_t place, bytes;

	if (!take_arrays(in, count_items(cat), &at, &crc))
		return fail_places(err);
	for (; t < end; t++) {
		piece = uns_tensor_pieces(cat, t);
		for (last = piece + t->n_pieces; piece < last; piece++) {
			if (!is_item(piece))
				continue;
			place = uns_le(at, 8);
			at += 8;
			if (place && (!uns_u64_mul(uns_piece_elems(piece), uns_dtype_size(t->dtype), &bytes) ||
				      !uns_inside(place - 1, bytes, piece->length_bytes)))
				return fail_places(err);
		}
	}
	return 0;
}

void uns_places_import(struct uns_backing *b, struct uns_span in)
{
	const struct uns_piece *piece = b->cat->pieces, *end = piece + b->cat->n_pieces;
	struct uns_location location = { .dense = true };
	const uint8_t *at, *crc;
	uint64_t place;

	if (!take_arrays(in, count_items(b->cat), &at, &crc))
		return;
	for (; piece < end; piece++) {
		if (!is_item(piece))
			continue;
		place = uns_le(at, 8);
		location.data_bytes = piece->offset_bytes + place - 1;
		location.crc32 = (uint32_t)uns_le(crc, 4);
		at += 8;
		crc += 4;
		if (place)
			uns_location_keep(b, piece, &location);
	}
}
