/* Checkpoints that are one file, and directories of safetensors, from end to end: the first byte is which, what
 * follows changes it. */
#include "fuzz.h"

#include "edited.h"
#include "files.h"
#include "show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		const char *golden, *skip;
	} trees[] = {
		{ "torchfile", NULL },
		{ "safetensors", NULL },
		{ "../fuzz/trees/hf", NULL },
		{ "../fuzz/trees/files", NULL },
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
