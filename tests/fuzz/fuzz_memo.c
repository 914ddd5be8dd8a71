/* Memos that machines share: their file (store/memo_file.c), the list of inputs (store/shared_memo.c), the catalog for
 * anywhere (model/catalog_pack.c) and the items' places (engine/places.c). The first byte is which of them. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "edited.h"
#include "engine/places.h"
#include "files.h"
#include "formats/format.h"
#include "model/catalog_pack.h"
#include "model/cover.h"
#include "store/memo_file.h"
#include "store/shared_memo.h"

extern const struct uns_format uns_format_dcp;

enum { DIGEST_AT = 48 };

static void parse(const uint8_t *bytes, size_t len)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct memo_parts parts;
	struct uns_err err = { 0 };

	files_expect(memo_file_parse(uns_span_of(bytes, len), 0, &arena, &parts, &err), &err);
	uns_arena_fini(&arena);
}

/* With the digest that makes a memo of it. */
static void parse_sealed(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = len < MEMO_FILE_HEAD_BYTES ? NULL : malloc(len);
	struct uns_sha256 h;

	if (!copy)
		return;
	memcpy(copy, bytes, len);
	uns_sha256_init(&h);
	uns_sha256_add(&h, copy, DIGEST_AT);
	uns_sha256_add(&h, copy + MEMO_FILE_HEAD_BYTES, len - MEMO_FILE_HEAD_BYTES);
	uns_sha256_end(&h, copy + DIGEST_AT);
	parse(copy, len);
	free(copy);
}

static bool equal(struct uns_span a, struct uns_span b)
{
	return uns_span_left(&a) == uns_span_left(&b) && (a.p == a.end || memcmp(a.p, b.p, uns_span_left(&a)) == 0);
}

/* Any three parts come back as they were. */
static void there_and_back(const uint8_t *bytes, size_t len)
{
	const struct memo_parts parts = { uns_span_of(bytes, len / 3), uns_span_of(bytes + len / 3, len / 3),
					  uns_span_of(bytes + 2 * (len / 3), len - 2 * (len / 3)) };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct memo_parts back;
	char *file;
	size_t n;

	if (memo_file_emit(7, &parts, &file, &n, NULL) < 0)
		_exit(2);
	if (memo_file_parse(uns_span_of(file, n), 7, &arena, &back, NULL) < 0 || !equal(parts.inputs, back.inputs) ||
	    !equal(parts.catalog, back.catalog) || !equal(parts.places, back.places))
		abort();
	free(file);
	uns_arena_fini(&arena);
}

static void see(const uint8_t *bytes, size_t len)
{
	struct shared_memo_subject of = { .path = "a/b", .format = "" };
	struct uns_capture *capture;
	struct uns_root *root;
	struct uns_err err = { 0 };

	if (uns_root_open(files_dir(), NULL, &root, NULL) < 0 || uns_capture_new(root, "", NULL, &capture, NULL) < 0)
		_exit(2);
	of.root = root;
	files_expect(shared_memo_seen(capture, &of, uns_span_of(bytes, len), &err), &err);
	uns_capture_free(capture);
	uns_root_close(root);
}

/* A real checkpoint, packed for anywhere: one with compressed items, or one without. */
static const struct uns_text *golden(bool compressed, struct uns_root **out_root)
{
	static const struct uns_format_options options;
	static struct uns_text packed_of[2];
	static struct uns_root *root_of[2];
	struct uns_text *packed = &packed_of[compressed];
	struct uns_root *root = root_of[compressed];
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_directory dir = { .path = "", .list = &list };
	struct uns_catalog *cat;

	if (!root) {
		if (uns_root_open(compressed ? UNSHARD_GOLDEN "/dcp/zstd/ckpt" : UNSHARD_GOLDEN "/dcp/ranks/ckpt", NULL,
				  &root, NULL) < 0 ||
		    uns_root_list(root, "", &arena, &list, NULL) < 0 || uns_catalog_new("", &cat, NULL) < 0)
			_exit(2);
		dir.root = root;
		if (uns_format_dcp.open(&dir, &options, cat, NULL) < 0 ||
		    uns_catalog_pack_anywhere(cat, root, packed, NULL) < 0)
			_exit(2);
		uns_catalog_free(cat);
		uns_arena_fini(&arena);
		root_of[compressed] = root;
	}
	*out_root = root;
	return packed;
}

/* What was proven by numbers alone is found again when all is looked at: a copy of a tensor was not proven. */
static void prove_again(const struct uns_catalog *cat)
{
	struct uns_tensor copy;
	size_t i, k;

	for (i = 0; i < cat->n_tensors; i++) {
		copy = cat->tensors[i];
		if (!uns_catalog_is_proven(cat, &cat->tensors[i]))
			continue;
		if (uns_catalog_is_proven(cat, &copy) || uns_cover_check(cat, &copy, NULL) < 0)
			abort();
		for (k = 0; k < copy.n_pieces; k++)
			if (uns_piece_check(&copy.shape, copy.dtype, &cat->pieces[copy.first_piece + k], NULL) < 0)
				abort();
	}
}

/* Places that are taken lie in their items. */
static void look_up(const struct uns_catalog *cat, struct uns_span in)
{
	struct uns_backing b = { .cat = cat };
	struct uns_err err = { 0 };
	struct uns_location at;
	int rc = uns_places_check(cat, in, &err);
	size_t i;

	files_expect(rc, &err);
	if (rc < 0)
		return;
	if (uns_places_import(&b, in, NULL) < 0)
		_exit(2);
	for (i = 0; i < cat->n_pieces; i++)
		if (uns_places_find(&b, i, &at) &&
		    !uns_inside(at.data_bytes, 0, cat->pieces[i].offset_bytes + cat->pieces[i].length_bytes))
			abort();
	free(b.places);
}

/* The catalog, changed; or as it is, with these places. */
static void unpack(struct uns_span in, bool places, bool compressed)
{
	struct uns_text changed = UNS_TEXT_INIT, again = UNS_TEXT_INIT;
	struct uns_root *root;
	const struct uns_text *packed = golden(compressed, &root);
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	int rc;

	if (places)
		uns_text_add(&changed, packed->p, packed->len);
	else
		edited_bytes(uns_span_of(packed->p, packed->len), in, &changed);
	if (uns_catalog_new("", &cat, NULL) < 0)
		_exit(2);
	rc = uns_catalog_unpack_anywhere(uns_span_of(changed.p, changed.len), root, cat, &err);
	files_expect(rc, &err);
	if (places && rc < 0)
		abort();
	if (rc == 0 && uns_catalog_pack_anywhere(cat, root, &again, NULL) < 0)
		abort();
	if (rc == 0) {
		prove_again(cat);
		look_up(cat, in);
	}
	uns_catalog_free(cat);
	uns_text_fini(&changed);
	uns_text_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_span in = uns_span_of(data, size);
	uint8_t which;

	if (!uns_take_u8(&in, &which))
		return 0;
	switch (which % 6) {
	case 0:
		parse(in.p, uns_span_left(&in));
		break;
	case 1:
		parse_sealed(in.p, uns_span_left(&in));
		break;
	case 2:
		there_and_back(in.p, uns_span_left(&in));
		break;
	case 3:
		see(in.p, uns_span_left(&in));
		break;
	case 4:
		unpack(in, false, which % 12 < 6);
		break;
	case 5:
		unpack(in, true, which % 12 < 6);
		break;
	}
	return 0;
}
