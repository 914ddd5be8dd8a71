/* DeepSpeed's checkpoints and universal ones, from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "zero/z2_w3", .skip = "global_step2_universal" },
		{ .golden = "zero/z3_w2", .skip = "global_step2_universal" },
		{ .golden = "zero/z1_bf16_optimizer_w2" },
		{ .golden = "zero/z0_w1" },
		{ .golden = "zero/z2_w3", .skip = "global_step2" },
		{ .golden = "zero/z3_w2", .skip = "global_step2" },
		{ .golden = "../fuzz/trees/zero_trainer" },
		{ .golden = "../fuzz/trees/dealt" },
		{ .golden = "zero/other" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
