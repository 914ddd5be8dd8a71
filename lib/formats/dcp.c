/* dcp: a plain torch.distributed.checkpoint directory.
 *
 *   .metadata   or __0.metadata, __1.metadata, ... (use_collectives=False)
 *   __0_0.distcp, __1_0.distcp, ...
 *   anything else beside them is a companion
 *
 * Owns the directory's layout and its facts; what is inside is in shards/. */
#include "formats/format.h"

#include <string.h>

#include "base/path.h"
#include "shards/beside.h"
#include "shards/dcp_dir.h"

static bool has_shards(const struct uns_listing *list)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (uns_str_ends(list->v[i].name, ".distcp") &&
		    uns_str_starts(list->v[i].name, "__"))
			return true;
	return false;
}

static int probe(const struct uns_directory *dir)
{
	bool metadata = uns_dcp_dir_is(dir->list), shards = has_shards(dir->list);

	if (!metadata && !shards)
		return 0;
	if (uns_listing_find(dir->list, "meta.pt")) /* Lightning's mark */
		return 40;
	return metadata && shards ? 70 : 30;
}

/* "step-1000" (torchtitan), "checkpoint-1000", "global_step_10": what trainers call directories. */
static int64_t step_of_name(const char *name)
{
	static const char *const prefix[] = { "step-", "step_", "step=", "checkpoint-", "global_step_",
					      "global_step" };
	unsigned long long n;
	size_t i;

	for (i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
		if (uns_str_number(name, prefix[i], "", &n) && n <= INT64_MAX)
			return (int64_t)n;
	return UNS_UNKNOWN;
}

static void find_facts(const struct uns_directory *dir, struct uns_catalog *cat)
{
	int64_t ranks = uns_beside_distcp_ranks(dir->list);

	cat->facts.format = "dcp";
	cat->facts.framework = "PyTorch distributed checkpoint";
	if (uns_listing_find(dir->list, "common.pt"))
		cat->facts.framework = "Megatron-Core distributed checkpoint";
	cat->facts.step = step_of_name(uns_path_name(dir->path));
	cat->facts.world_size = ranks ? ranks : UNS_UNKNOWN;
	/* .metadata is renamed into place after all shards are on disk. */
	cat->facts.finished = uns_dcp_dir_is(dir->list);
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options,
		    struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_dcp_roots roots = {
		.weights = options && options->n_weight_roots ? options->weight_roots : NULL,
		.n_weights = options ? options->n_weight_roots : 0,
	};
	struct uns_err why = { 0 };

	find_facts(dir, cat);
	if (uns_dcp_dir_add(cat, dir->root, dir->path, "", &roots, &why) < 0) {
		if (why.code == -ENOMEM || why.code == -ESTALE)
			return uns_fail(err, why.code, "%s", why.text);
		UNS_TRY(uns_catalog_add_problem(cat, UNS_SCOPE_ALL, why.code, "%s", why.text));
	}
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	return uns_catalog_seal(cat, err);
}

const struct uns_format uns_format_dcp = {
	.name = "dcp",
	.probe = probe,
	.open = open_dir,
};
