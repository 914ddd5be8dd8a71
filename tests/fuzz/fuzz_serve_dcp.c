/* Checkpoints of torch.distributed.checkpoint from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct edited_tree trees[] = {
		{ .golden = "dcp/zstd/ckpt" },
		{ .golden = "dcp/ranks/ckpt" },
		{ .golden = "dcp/megatron/iter_0000010" },
		{ .golden = "dcp/torch2.2.2_lightning/ckpt" },
		{ .golden = "run" },
		{ .golden = "../fuzz/trees/megatron" },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
