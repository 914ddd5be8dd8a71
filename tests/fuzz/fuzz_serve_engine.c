/* DeepSpeed's checkpoints of other settings from end to end: a pipeline, sub-groups, fp16, frozen weights beside an
 * adapter, some layers with experts, AutoEP at stage 3, and what ds_to_universal makes of round_robin_gradients. The
 * first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "../fuzz/trees/engine_pipe" },    { .golden = "../fuzz/trees/engine_subgroups" },
		{ .golden = "../fuzz/trees/engine_fp16" },    { .golden = "../fuzz/trees/engine_adapter" },
		{ .golden = "../fuzz/trees/engine_experts" }, { .golden = "../fuzz/trees/engine_autoep" },
		{ .golden = "../fuzz/trees/engine_dealt" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
