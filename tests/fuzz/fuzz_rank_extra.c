/* ranks/extra.c and values.c: two pickles as what two ranks save besides tensors. */
#include "fuzz.h"

#include "files.h"
#include "mutate_pickles.h"
#include "ranks/extra.h"
#include "torch_maker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct uns_rank_file files[] = { { "rank0.pt", 0 }, { "rank1.pt", 1 } };
	struct files_catalog c;
	struct uns_err err = { 0 };

	if (!files_put_torch_pair("rank0.pt", "rank1.pt", uns_span_of(data, size)))
		return 0;
	files_catalog_open(&c);
	files_expect(uns_rank_extra_add(c.cat, c.root, files, 2, &err), &err);
	files_catalog_done(&c);
	return 0;
}
