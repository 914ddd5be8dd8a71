/* DeepSpeed's checkpoints of tensor-parallel ranks, and with experts in files of their own, from end to end: the first
 * byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "../fuzz/trees/cut_z1" },
		{ .golden = "../fuzz/trees/cut_z3" },
		{ .golden = "../fuzz/trees/cut_experts" },
		{ .golden = "../fuzz/trees/cut_autoep" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
