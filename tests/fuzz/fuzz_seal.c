/* seal/seal_text.c: any text, as it is and with the last line that makes a seal of it. What is accepted is emitted
 * again byte for byte. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "seal/seal.h"

static void parse(const void *bytes, size_t len)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_text again = UNS_TEXT_INIT;
	struct uns_seal seal;
	size_t i;

	if (uns_seal_parse(uns_span_of(bytes, len), &arena, &seal, NULL) == 0) {
		for (i = 0; i < seal.n_files; i++)
			if (uns_seal_find(&seal, seal.file[i].name) != &seal.file[i])
				abort();
		uns_seal_emit(&seal, &again);
		if (again.failed || again.len != len || memcmp(again.p, bytes, len) != 0)
			abort();
	}
	uns_text_fini(&again);
	uns_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uns_text whole = UNS_TEXT_INIT;
	uint8_t hash[UNS_SHA256_BYTES];
	struct uns_sha256 h;
	size_t i;

	parse(data, size);
	uns_sha256_init(&h);
	uns_sha256_add(&h, data, size);
	uns_sha256_end(&h, hash);
	uns_text_add(&whole, data, size);
	uns_text_str(&whole, "# end ");
	for (i = 0; i < sizeof(hash); i++)
		uns_text_printf(&whole, "%02x", hash[i]);
	uns_text_str(&whole, "\n");
	if (!whole.failed)
		parse(whole.p, whole.len);
	uns_text_fini(&whole);
	return 0;
}
