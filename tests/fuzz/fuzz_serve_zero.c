/* DeepSpeed's checkpoints and universal ones, from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "edited.h"
#include "files.h"
#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		const char *golden, *skip;
	} trees[] = {
		{ "zero/z2_w3", "global_step2_universal" },
		{ "zero/z3_w2", "global_step2_universal" },
		{ "zero/z1_bf16_optimizer_w2", NULL },
		{ "zero/z0_w1", NULL },
		{ "zero/z2_w3", "global_step2" },
		{ "zero/z3_w2", "global_step2" },
		{ "../fuzz/trees/zero_trainer", NULL },
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
