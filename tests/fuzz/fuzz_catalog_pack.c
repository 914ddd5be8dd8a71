/* model/catalog_pack.c: catalogs of real checkpoints as bytes, changed (edited.h); the first byte is which one.
 * What is read is packed and read again the same. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edited.h"
#include "files.h"
#include "formats/format.h"
#include "model/catalog_pack.h"

extern const struct uns_format uns_format_zero, uns_format_dcp, uns_format_ranks, uns_format_hf_fsdp;

/* The file's identity says when this test's files were written: all are packed as missing, below an empty
 * directory. */
static void pack_golden(const char *golden, const struct uns_format *format, const struct uns_root *empty,
			struct uns_text *out)
{
	const struct uns_format_options options = { 0 };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_directory dir = { .path = "", .list = &list };
	struct uns_root *root;
	struct uns_catalog *cat;
	char path[512];
	size_t i;

	snprintf(path, sizeof(path), "%s/%s", UNSHARD_GOLDEN, golden);
	if (uns_root_open(path, NULL, &root, NULL) < 0 || uns_root_list(root, "", &arena, &list, NULL) < 0 ||
	    uns_catalog_new("", &cat, NULL) < 0)
		_exit(2);
	dir.root = root;
	if (format->open(&dir, &options, cat, NULL) < 0)
		_exit(2);
	for (i = 0; i < cat->n_files; i++) {
		cat->files[i].root = empty;
		cat->files[i].missing = true;
		cat->files[i].stat = (struct uns_stat){ 0 };
	}
	if (uns_catalog_pack(cat, empty, out, NULL) < 0)
		_exit(2);
	uns_catalog_free(cat);
	uns_root_close(root);
	uns_arena_fini(&arena);
}

static int unpack(const struct uns_text *bytes, const struct uns_root *root, struct uns_text *again)
{
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	int rc;

	if (uns_catalog_new("", &cat, NULL) < 0)
		_exit(2);
	rc = uns_catalog_unpack(uns_span_of(bytes->p, bytes->len), root, cat, &err);
	files_expect(rc, &err);
	if (rc == 0 && uns_catalog_pack(cat, root, again, NULL) < 0)
		abort();
	uns_catalog_free(cat);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		const char *golden;
		const struct uns_format *format;
	} from[] = {
		{ "zero/z2_w3/global_step2", &uns_format_zero },
		{ "dcp/zstd/ckpt", &uns_format_dcp },
		{ "ranks/fsdp2", &uns_format_ranks },
		{ "run/checkpoint-2", &uns_format_hf_fsdp },
	};
	static struct uns_text packed[sizeof(from) / sizeof(*from)];
	struct uns_text changed = UNS_TEXT_INIT, again = UNS_TEXT_INIT, third = UNS_TEXT_INIT;
	struct uns_span in = uns_span_of(data, size);
	struct uns_root *root;
	uint8_t which;

	if (!uns_take_u8(&in, &which) || uns_root_open(files_dir(), NULL, &root, NULL) < 0)
		return 0;
	which %= sizeof(from) / sizeof(*from);
	if (!packed[which].len)
		pack_golden(from[which].golden, from[which].format, root, &packed[which]);
	edited_bytes(uns_span_of(packed[which].p, packed[which].len), in, &changed);
	if (unpack(&changed, root, &again) == 0 &&
	    (unpack(&again, root, &third) < 0 || third.len != again.len || memcmp(third.p, again.p, again.len) != 0))
		abort();
	uns_text_fini(&changed);
	uns_text_fini(&again);
	uns_text_fini(&third);
	uns_root_close(root);
	return 0;
}
