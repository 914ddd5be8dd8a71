/* DeepSpeed's checkpoints and universal ones, from end to end: the first byte is which one, what follows changes it. */
#include "fuzz.h"

#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct show_tree trees[] = {
		{ "zero/z2_w3", "global_step2_universal" },
		{ "zero/z3_w2", "global_step2_universal" },
		{ "zero/z1_bf16_optimizer_w2", NULL },
		{ "zero/z0_w1", NULL },
		{ "zero/z2_w3", "global_step2" },
		{ "zero/z3_w2", "global_step2" },
		{ "../fuzz/trees/zero_trainer", NULL },
	};

	show_edited(trees, sizeof(trees) / sizeof(*trees), uns_span_of(data, size));
	return 0;
}
