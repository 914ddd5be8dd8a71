/* State dicts of plain DCP, and a Trainer's whose names are published ones, from end to end: the first byte is which
 * one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "../fuzz/trees/plain" },
		{ .golden = "../fuzz/trees/models" },
		{ .golden = "../fuzz/trees/renamed" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
