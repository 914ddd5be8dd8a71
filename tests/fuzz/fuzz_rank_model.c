/* ranks/files.c: two pickles as the model files of two ranks (one: both have the same). */
#include "fuzz.h"

#include "files.h"
#include "mutate_pickles.h"
#include "ranks/files.h"
#include "torch_maker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct uns_rank_file files[] = { { "rank0.pt", 0 }, { "rank1.pt", 1 } };
	struct uns_rank_params params = { 0 };
	struct files_catalog c;
	struct uns_err err = { 0 };

	if (!files_put_torch_pair("rank0.pt", "rank1.pt", uns_span_of(data, size)))
		return 0;
	files_catalog_open(&c);
	files_expect(uns_rank_files_add_model_params(c.cat, c.root, files, 2, &params, &err), &err);
	files_catalog_done(&c);
	return 0;
}
