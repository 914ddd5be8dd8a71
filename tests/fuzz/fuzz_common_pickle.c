/* megatron/common_pickle.c: any bytes as a common.pt, and as objects of Megatron-FSDP. What is kept must be a dict that
 * a view can continue. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "megatron/common_pickle.h"
#include "mutate_pickles.h"
#include "torch_maker.h"
#include "wire/pickle.h"

enum { OBJECTS = 3 };

static void check(const struct uns_catalog *cat)
{
	const struct uns_value *kept = uns_catalog_value(cat, UNS_MEGATRON_PICKLE, ""), *v;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text text = UNS_TEXT_INIT;
	struct uns_span in;

	if (!kept || (kept->kind != UNS_VALUE_BYTES && kept->kind != UNS_VALUE_STR))
		abort();
	uns_text_add(&text, kept->bytes, kept->n);
	uns_text_add(&text, ".", 1);
	in = uns_span_of(text.p, text.len);
	if (kept->kind == UNS_VALUE_BYTES && (uns_pickle_parse(&in, &arena, &v, NULL) < 0 || v->kind != UNS_VALUE_DICT))
		abort();
	uns_text_fini(&text);
	uns_arena_fini(&arena);
}

static void as_file(struct uns_span in)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_reader r = uns_reader_of_span(&in);
	struct uns_torchfile torch;
	struct files_catalog c;
	struct uns_err err = { 0 };
	int rc;

	files_catalog_open(&c);
	if (uns_torchfile_open(&r, &arena, &torch, NULL) == 0) {
		rc = uns_megatron_common_keep(c.cat, 0, &torch, &err);
		files_expect(rc, &err);
		if (rc == 0)
			check(c.cat);
	}
	files_catalog_done(&c);
	uns_arena_fini(&arena);
}

static void as_objects(struct uns_span in)
{
	static const char *const dict[OBJECTS] = { "", "schedule", "" }, *const name[OBJECTS] = { "a", "b", "c" };
	struct uns_megatron_kept kept = { 0 };
	struct files_catalog c;
	struct uns_err err = { 0 };
	int rc = 0;
	size_t i;

	files_catalog_open(&c);
	for (i = 0; i < OBJECTS && rc >= 0; i++) {
		rc = uns_megatron_kept_add(&kept, dict[i], name[i], in, &err);
		files_expect(rc > 0 ? 0 : rc, &err);
	}
	if (uns_megatron_kept_finish(&kept, c.cat, 0, NULL) < 0)
		abort();
	check(c.cat);
	uns_megatron_kept_fini(&kept);
	files_catalog_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_span in = uns_span_of(data, size);
	struct torch_maker maker;

	as_file(in);
	as_objects(in);
	if (torch_of_pickle(&in, &maker)) {
		as_file(uns_span_of(maker.zip.p, maker.zip.len));
		as_objects(uns_span_of(maker.zip.p, maker.zip.len));
		torch_maker_fini(&maker);
	}
	return 0;
}
