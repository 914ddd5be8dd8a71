/* Checkpoints of torch.distributed.checkpoint from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "edited.h"
#include "files.h"
#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		const char *golden, *skip;
	} trees[] = {
		{ "dcp/zstd/ckpt", NULL },
		{ "dcp/ranks/ckpt", NULL },
		{ "dcp/megatron/iter_0000010", NULL },
		{ "dcp/torch2.2.2_lightning/ckpt", NULL },
		{ "run", NULL },
	};
	struct uns_span in = uns_span_of(data, size);
	uint8_t which;

	if (!uns_take_u8(&in, &which))
		return 0;
	which %= sizeof(trees) / sizeof(*trees);
	edited_put(trees[which].golden, trees[which].skip, in);
	show_all(files_dir(), NULL);
	return 0;
}
