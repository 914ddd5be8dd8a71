/* dcp/item.c: any pickle as an item's value; and any bytes as an item in a file, plain and compressed. */
#include "fuzz.h"

#include <stdlib.h>

#include "dcp/item.h"
#include "files.h"
#include "mutate_pickles.h"
#include "torch_maker.h"

static void value_of(struct uns_span bytes)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_value *v = NULL;
	struct uns_err err = { 0 };
	int rc = uns_dcp_item_value(bytes, &arena, &v, &err);

	files_expect(rc, &err);
	if ((rc == 0) != (v != NULL))
		abort();
	uns_arena_fini(&arena);
}

static void read_item(const struct uns_catalog *cat, const struct uns_dcp_item_location *at)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_dcp_reader reader;
	struct uns_span bytes, head;
	struct uns_err err = { 0 };
	int rc;

	uns_dcp_reader_init(&reader, cat);
	rc = uns_dcp_item_bytes(&reader, at, &arena, &bytes, &err);
	files_expect(rc, &err);
	if (rc == 0)
		value_of(bytes);
	err = (struct uns_err){ 0 };
	files_expect(uns_dcp_item_head(&reader, at, &arena, &head, &err), &err);
	uns_dcp_reader_fini(&reader);
	uns_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_span in = uns_span_of(data, size);
	struct uns_dcp_item_location at = { .length_bytes = size };
	struct torch_maker maker;
	struct files_catalog c;

	files_put("__0_0.distcp", in);
	files_catalog_open(&c);
	if (uns_catalog_add_file(c.cat, c.root, "__0_0.distcp", &at.file, NULL) < 0)
		abort();
	read_item(c.cat, &at);
	at.codec = UNS_CODEC_ZSTD;
	read_item(c.cat, &at);
	at.length_bytes++; /* more than there is */
	read_item(c.cat, &at);
	files_catalog_done(&c);
	if (torch_of_pickle(&in, &maker)) {
		value_of(uns_span_of(maker.zip.p, maker.zip.len));
		torch_maker_fini(&maker);
	}
	return 0;
}
