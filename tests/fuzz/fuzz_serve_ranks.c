/* One file per rank from end to end: the first byte is which checkpoint, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct show_tree trees[] = {
		{ "ranks/fsdp2", NULL },
		{ "ranks/orig", NULL },
		{ "rank_files/torch2.1.2", NULL },
		{ "rank_files/torch2.0.1", NULL },
		{ "../fuzz/trees/verl", NULL },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
