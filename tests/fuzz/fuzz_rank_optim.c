/* ranks/files.c, optim.c, units.c and unit_states.c: two pickles as the optimizer files of two ranks, of a model
 * with the parameters "a", "b.c" and "d", to which numbers and flat units may stand. */
#include "fuzz.h"

#include "files.h"
#include "mutate_pickles.h"
#include "ranks/files.h"
#include "torch_maker.h"

static const struct uns_rank_file files[] = { { "rank0.pt", 0 }, { "rank1.pt", 1 } };

static void add(const struct uns_rank_params *params)
{
	struct files_catalog c;
	struct uns_err err = { 0 };

	files_catalog_open(&c);
	files_expect(params ? uns_rank_files_add_optimizer_of(c.cat, c.root, files, 2, params, &err)
			    : uns_rank_files_add_optimizer(c.cat, c.root, files, 2, &err),
		     &err);
	files_catalog_done(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct uns_rank_param v[] = { { "a", { 2, { 4, 3 } }, false },
						   { "b.c", { 1, { 5 } }, false },
						   { "d", { 2, { 2, 3 } }, false } };
	struct uns_rank_params params = { .v = v, .n = 3, .units = { .assume = true } };

	if (!files_put_torch_pair("rank0.pt", "rank1.pt", uns_span_of(data, size)))
		return 0;
	add(NULL);
	add(&params);
	params.units.map = "[[\"a\"],[\"b.c\",\"d\"]]";
	add(&params);
	return 0;
}
