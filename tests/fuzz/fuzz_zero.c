/* zero/: pickles as the model file and the optimizer's shards of a DeepSpeed checkpoint of two ranks, opened
 * by the format. A fourth one is the second rank's model file (stage 3). */
#include "fuzz.h"

#include "files.h"
#include "formats/format.h"
#include "mutate_pickles.h"
#include "torch_maker.h"

extern const struct uns_format uns_format_zero;

static const char *const model[] = { "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt",
				     "zero_pp_rank_1_mp_rank_00_model_states.pt" };
static const char *const optim[] = { "zero_pp_rank_0_mp_rank_00_optim_states.pt",
				     "zero_pp_rank_1_mp_rank_00_optim_states.pt" };

static void put_files(struct uns_span in)
{
	struct uns_span first = in;
	size_t i;

	for (i = 0; i < 3; i++)
		files_remove(model[i]);
	for (i = 0; i < 2; i++)
		files_remove(optim[i]);
	if (!files_put_torch(model[0], &in))
		return;
	files_put_torch(optim[0], &in);
	files_put_torch(optim[1], &in);
	if (files_put_torch(model[2], &in)) {
		files_remove(model[0]);
		files_put_torch(model[1], &first);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct uns_format_options options = { 0 };
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list = { 0 };
	struct uns_err err = { 0 };
	struct uns_directory dir;
	struct files_catalog c;

	put_files(uns_span_of(data, size));
	files_catalog_open(&c);
	files_expect(uns_root_list(c.root, "", &arena, &list, &err), &err);
	dir = (struct uns_directory){ .root = c.root, .path = "", .list = &list };
	if (uns_format_zero.probe(&dir))
		files_expect(uns_format_zero.open(&dir, &options, c.cat, &err), &err);
	files_catalog_done(&c);
	uns_arena_fini(&arena);
	return 0;
}
