/* Checkpoints that are one file, and directories of safetensors, from end to end: the first byte is which, what
 * follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "torchfile" },
		{ .golden = "safetensors" },
		{ .golden = "../fuzz/trees/hf" },
		{ .golden = "../fuzz/trees/files" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
