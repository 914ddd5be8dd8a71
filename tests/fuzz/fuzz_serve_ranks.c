/* One file per rank from end to end: the first byte is which checkpoint, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "ranks/fsdp2" },
		{ .golden = "ranks/orig" },
		{ .golden = "rank_files/torch2.1.2" },
		{ .golden = "rank_files/torch2.0.1" },
		{ .golden = "../fuzz/trees/verl" },
		{ .golden = "../fuzz/trees/flat" },
		{ .golden = "../fuzz/trees/one_rank" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
