/* Checkpoints of torch.distributed.checkpoint from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct show_tree trees[] = {
		{ "dcp/zstd/ckpt", NULL },
		{ "dcp/ranks/ckpt", NULL },
		{ "dcp/megatron/iter_0000010", NULL },
		{ "dcp/torch2.2.2_lightning/ckpt", NULL },
		{ "run", NULL },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
