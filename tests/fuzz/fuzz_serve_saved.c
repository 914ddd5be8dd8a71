/* What other programs save by torch.distributed.checkpoint, from end to end: optimizers whose parameters are numbered,
 * safetensors of ranks, and Megatron-Core's dense layers, vision model and optimizers. The first byte is which one,
 * what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "../fuzz/trees/saved_flat" },      { .golden = "../fuzz/trees/saved_numbered" },
		{ .golden = "../fuzz/trees/saved_factors" },   { .golden = "../fuzz/trees/saved_parts" },
		{ .golden = "../fuzz/trees/saved_dense" },     { .golden = "../fuzz/trees/saved_vision" },
		{ .golden = "../fuzz/trees/saved_optimizer" }, { .golden = "../fuzz/trees/saved_buckets" },
		{ .golden = "../fuzz/trees/saved_space" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
