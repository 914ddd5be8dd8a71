#include "engine/places.h"

#include "base/cleanup.h"
#include "engine/resolve.h"

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

/* The same distance as the piece before: its run grows. */
static void add_place(struct uns_text *ends, struct uns_text *runs, uint64_t *last, size_t i, uint64_t place)
{
	if (i && place == *last)
		ends->len -= 4;
	else
		uns_text_le(runs, place, 8);
	uns_text_le(ends, i + 1, 4);
	*last = place;
}

int uns_places_export(struct uns_backing *b, const struct uns_stop *stop, struct uns_text *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text ends = UNS_TEXT_INIT, runs = UNS_TEXT_INIT, crcs = UNS_TEXT_INIT;
	const struct uns_catalog *cat = b->cat;
	struct uns_location at;
	bool known, any_crc = false;
	uint64_t last = 0;
	size_t i;

	UNS_TRY(resolve_all(b, stop, err));
	for (i = 0; i < cat->n_pieces; i++) {
		known = uns_piece_is_item(&cat->pieces[i]) && uns_location_known(b, &cat->pieces[i], &at) && at.dense;
		add_place(&ends, &runs, &last, i, known ? 1 + at.data_bytes - cat->pieces[i].offset_bytes : 0);
		uns_text_le(&crcs, known ? at.crc32 : 0, 4);
		any_crc |= known && at.crc32;
	}
	if (ends.failed || runs.failed || crcs.failed)
		return uns_oom(err);
	uns_text_le(out, cat->n_pieces, 8);
	uns_text_le(out, ends.len / 4, 8);
	uns_text_add(out, ends.p, ends.len);
	uns_text_add(out, runs.p, runs.len);
	if (any_crc)
		uns_text_add(out, crcs.p, crcs.len);
	return out->failed ? uns_oom(err) : 0;
}
