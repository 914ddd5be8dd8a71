/* dcp: a plain torch.distributed.checkpoint directory.
 *
 *   .metadata   or __0.metadata, __1.metadata, ... (use_collectives=False)
 *   __0_0.distcp, __1_0.distcp, ...
 *   anything else beside them is a companion
 *
 * Owns the directory's layout and its facts; what is inside is in dcp/. */
#include "formats/format.h"

#include <string.h>

#include "base/path.h"
#include "model/wrappers.h"
#include "files/beside.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "dcp/megatron_groups.h"
#include "dcp/dir.h"

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

#define MEGATRON_PREFIX "iter_"

/* "step-1000" (torchtitan), "checkpoint-1000", "global_step_10", "iter_0000010" (Megatron): what trainers
 * call directories. */
static int64_t step_of_name(const char *name)
{
	static const char *const prefix[] = { "step-", "step_", "step=", "checkpoint-", "global_step_",
					      "global_step" };
	unsigned long long n;
	size_t i;

	for (i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
		if (uns_str_number(name, prefix[i], "", &n) && n <= INT64_MAX)
			return (int64_t)n;
	if (uns_str_starts(name, MEGATRON_PREFIX)) {
		name += strlen(MEGATRON_PREFIX);
		name += strspn(name, "0"); /* seven digits at least */
		if (uns_str_number(*name ? name : "0", "", "", &n) && n <= INT64_MAX)
			return (int64_t)n;
	}
	return UNS_UNKNOWN;
}

/* Megatron-Core's torch_dist: a DCP directory, and beside it what is not sharded. Its tensors go by their
 * own names, all layers of a kind stacked in one. Source: megatron-core 0.16.1, core/dist_checkpointing. */
static bool is_megatron(const struct uns_directory *dir)
{
	return uns_listing_find(dir->list, UNS_MEGATRON_COMMON) != NULL;
}

/* Buckets of the optimizer: flat, of several parameters each, with padding that nobody sets. (Source:
 * distrib_optimizer.py, sharded_param_state_dp_reshardable.) */
static bool is_bucket(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_OTHER && strstr(t->key, "optimizer.distributed.") && strstr(t->key, ".bucket_idx_");
}

static int tell_buckets(struct uns_catalog *cat, struct uns_err *err)
{
	bool any = false;
	size_t i;

	for (i = 0; cat->summary.is_megatron && i < cat->n_tensors; i++) {
		if (!is_bucket(&cat->tensors[i]))
			continue;
		cat->tensors[i].strange = true;
		any = true;
	}
	if (!any)
		return 0;
	return uns_catalog_add_finding(
		cat, UNS_FINDING(.id = UNS_FOUND_MEGATRON_BUCKETS, .scope = UNS_SCOPE_OPTIMIZER), err);
}

static int add_megatron_groups(const struct uns_directory *dir, struct uns_catalog *cat, struct uns_err *err)
{
	size_t i = 0;

	while (i < cat->n_tensors && !uns_role_is_optimizer(cat->tensors[i].role))
		i++;
	if (!cat->summary.is_megatron || i == cat->n_tensors || cat->n_groups)
		return 0;
	UNS_TRY(uns_megatron_groups_add(cat, dir->root, dir->path, err));
	if (cat->n_groups)
		return 0;
	return uns_catalog_add_finding(
		cat,
		UNS_FINDING(.id = UNS_FOUND_MEGATRON_OPTIMIZER, .scope = UNS_SCOPE_OPTIMIZER), err);
}

static void find_summary(const struct uns_directory *dir, struct uns_catalog *cat)
{
	int64_t ranks = uns_beside_distcp_ranks(dir->list);

	cat->summary.format = "dcp";
	cat->summary.family = UNS_FAMILY_DCP;
	cat->summary.framework = "PyTorch distributed checkpoint";
	cat->summary.is_megatron = is_megatron(dir);
	if (cat->summary.is_megatron)
		cat->summary.framework = "Megatron-Core distributed checkpoint";
	cat->summary.step = step_of_name(uns_root_name(dir->root, dir->path));
	cat->summary.world_size = ranks ? ranks : UNS_UNKNOWN;
	/* .metadata is renamed into place after all shards are on disk. */
	cat->summary.finished = uns_dcp_dir_is(dir->list);
}

/* A step's directory is made before anything is written into it. */
static bool begun(const struct uns_directory *dir)
{
	return uns_listing_find(dir->list, ".metadata.tmp") ||
	       (!dir->list->n && step_of_name(uns_root_name(dir->root, dir->path)) != UNS_UNKNOWN);
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options,
		    struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_dcp_roots roots = {
		.weights = options && options->n_weight_roots ? options->weight_roots : NULL,
		.n_weights = options ? options->n_weight_roots : 0,
	};
	struct uns_err why = { .keep = &cat->arena };

	find_summary(dir, cat);
	if (uns_dcp_dir_add(cat, dir->root, dir->path, "", &roots, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_ALL, &why, err));
	UNS_TRY(tell_buckets(cat, err));
	UNS_TRY(add_megatron_groups(dir, cat, err));
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	uns_resume_find(cat);
	UNS_TRY(uns_wrappers_clean(cat, err));
	UNS_TRY(uns_adapter_find(cat, err));
	return uns_catalog_seal(cat, err);
}

const struct uns_format uns_format_dcp = {
	.name = "dcp",
	.family = UNS_FAMILY_DCP,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
};
