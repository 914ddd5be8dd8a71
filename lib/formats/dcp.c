/* dcp: a plain torch.distributed.checkpoint directory.
 *
 *   .metadata   or __0.metadata, __1.metadata, ... (use_collectives=False)
 *   __0_0.distcp, __1_0.distcp, ...
 *   anything else beside them is a companion
 *
 * Owns the directory's layout and its facts; what is inside is in dcp/. */
#include "formats/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "io/seen.h"
#include "model/wrappers.h"
#include "files/beside.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "megatron/buckets.h"
#include "megatron/fsdp.h"
#include "megatron/groups.h"
#include "megatron/space.h"
#include "dcp/dir.h"

static int probe(const struct uns_directory *dir)
{
	bool metadata = uns_dcp_dir_is(dir->list), shards = false;
	size_t i;

	for (i = 0; i < dir->list->n; i++)
		shards |= uns_str_glob("__*.distcp", dir->list->v[i].name);
	if (!metadata && !shards)
		return 0;
	if (uns_listing_find(dir->list, "meta.pt")) /* Lightning's mark */
		return 40;
	return metadata && shards ? 70 : 30;
}

/* "step-1000" (torchtitan), "checkpoint-1000", "global_step_10", "iter_0000010" (Megatron, seven digits at least): what
 * trainers call directories. */
static int64_t step_of_name(const struct uns_directory *dir)
{
	static const char *const prefix[] = { "step-", "step_", "step=", "checkpoint-", "global_step_", "global_step" };
	int64_t step = UNS_UNKNOWN;
	size_t i;

	for (i = 0; i < sizeof(prefix) / sizeof(*prefix) && step == UNS_UNKNOWN; i++)
		step = uns_beside_named_step(dir->root, dir->path, prefix[i]);
	return step != UNS_UNKNOWN ? step : uns_beside_iteration(dir->root, dir->path);
}

/* One rank of data parallelism gathers all buckets and saves them as one pickle. (Source: distrib_optimizer.py,
 * sharded_param_state_dp_zero.) */
static int find_gathered(const struct uns_dcp_metadata *meta, struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;

	for (; e < end; e++)
		if (e->kind == UNS_DCP_BYTES && strstr(e->key, "optimizer.distributed.dp_group_idx_") &&
		    strstr(e->key, ".param_state/"))
			return UNS_ADD_FINDING(cat, err, MEGATRON_GATHERED, .scope = UNS_SCOPE_OPTIMIZER,
					       .arg = { { "name", uns_str(e->key) } });
	return 0;
}

/* A directory inside of the step's: veRL's global_step_10/actor/dist_ckpt, mcore_adapter's
 * checkpoint-10/iter_0000001/dist_model (its iteration is always 1). */
static const struct {
	const char *name, *prefix; /* of this directory; of the one two above it */
} inside[] = { { "dist_ckpt", "global_step_" }, { "dist_model", "checkpoint-" } };

static int step_of_outer(const struct uns_directory *dir, int64_t *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_root *root = dir->root;
	const char *name = uns_root_name(root, dir->path), *path;
	size_t i;

	for (i = 0; i < sizeof(inside) / sizeof(*inside); i++) {
		if (strcmp(name, inside[i].name) != 0)
			continue;
		UNS_TRY(uns_root_up(root, dir->path, &arena, &root, &path, err));
		if (path)
			UNS_TRY(uns_root_up(root, path, &arena, &root, &path, err));
		if (path)
			*out = uns_beside_named_step(root, path, inside[i].prefix);
		return 0;
	}
	return 0;
}

static int restore_torch_dist(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			      struct uns_err *err)
{
	UNS_TRY(uns_megatron_space_restore(meta, arena, cat, err));
	UNS_TRY(find_gathered(meta, cat, err));
	return uns_megatron_buckets_name(meta, arena, cat, err);
}

/* Buckets that got no names are flat tensors of several parameters each, with padding that is never set. (Source:
 * distrib_optimizer.py, sharded_param_state_dp_reshardable.) */
static void find_buckets(struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; cat->summary.is_megatron && i < cat->n_tensors; i++) {
		struct uns_tensor *t = &cat->tensors[i];

		if (t->role == UNS_ROLE_OTHER && strstr(t->key, "optimizer.distributed.") &&
		    strstr(t->key, ".bucket_idx_"))
			t->strange = true;
	}
}

static int read_common_file(const struct uns_directory *dir, struct uns_catalog *cat, struct uns_err *err)
{
	const char *format = uns_path_join(&cat->arena, dir->path, "metadata.json");
	struct uns_err why = { 0 };
	struct uns_stat stat;
	bool wants_groups;
	size_t i = 0;
	int code;

	UNS_TRY_ALLOC(format, err);
	code = uns_stat_seen(dir->root, dir->capture, format, &stat, &why); /* it may be a link to nothing */
	if (code == -ENOENT)
		UNS_TRY(UNS_ADD_FINDING(cat, err, MEGATRON_NO_FORMAT, .scope = UNS_SCOPE_SHARDED, .file = format));
	else
		UNS_TRY(uns_fail_if_passing(err, code, &why));
	while (i < cat->n_tensors && !uns_role_is_optimizer(cat->tensors[i].role))
		i++;
	wants_groups = i < cat->n_tensors && !cat->n_groups;
	UNS_TRY(uns_megatron_common_read(cat, dir->root, dir->path, wants_groups, err));
	if (cat->summary.named_by_rule && !cat->n_groups)
		UNS_TRY(uns_megatron_bucket_groups_read(cat, err));
	if (!wants_groups || cat->n_groups)
		return 0;
	return UNS_ADD_FINDING(cat, err, MEGATRON_OPTIMIZER, .scope = UNS_SCOPE_OPTIMIZER);
}

static void find_summary(const struct uns_directory *dir, struct uns_catalog *cat)
{
	int64_t ranks = uns_beside_distcp_ranks(dir->list);

	cat->summary.format = "dcp";
	cat->summary.family = UNS_FAMILY_DCP;
	/* Megatron-Core's torch_dist: beside a DCP directory's files lies what is not sharded. Its tensors have names
	 * of its own, all layers of a kind stacked in one. Source: megatron-core 0.16.1, core/dist_checkpointing. */
	cat->summary.is_megatron = uns_listing_find(dir->list, UNS_MEGATRON_COMMON) != NULL;
	cat->summary.framework =
		cat->summary.is_megatron ? "Megatron-Core distributed checkpoint" : "PyTorch distributed checkpoint";
	cat->summary.step = step_of_name(dir);
	cat->summary.world_size = ranks ? ranks : UNS_UNKNOWN;
	/* .metadata is renamed into place after all shards are on disk. */
	cat->summary.finished = uns_dcp_dir_is(dir->list);
}

/* Where the name has none: that of a directory above, or the training's own count (NeMo's weights/). */
static int step_of_training(const struct uns_directory *dir, struct uns_catalog *cat, struct uns_err *err)
{
	int64_t step;

	if (cat->summary.step != UNS_UNKNOWN || !cat->summary.is_megatron)
		return 0;
	UNS_TRY(step_of_outer(dir, &cat->summary.step, err));
	if (cat->summary.step == UNS_UNKNOWN &&
	    uns_value_int(uns_catalog_value(cat, UNS_MEGATRON_COMMON, UNS_MEGATRON_ITERATION), &step) && step >= 0)
		cat->summary.step = step;
	return 0;
}

/* A step's directory is made before anything is written into it. */
static bool begun(const struct uns_directory *dir)
{
	return uns_listing_find(dir->list, ".metadata.tmp") || (!dir->list->n && step_of_name(dir) != UNS_UNKNOWN);
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	struct uns_dcp_roots roots = {
		.weights = options && options->n_weight_roots ? options->weight_roots : NULL,
		.n_weights = options ? options->n_weight_roots : 0,
	};
	struct uns_err why = { .keep = &cat->arena };
	bool torch_dist;

	find_summary(dir, cat);
	torch_dist = cat->summary.is_megatron;
	roots.restore = torch_dist ? restore_torch_dist : uns_megatron_fsdp_restore;
	if (uns_dcp_dir_add(cat, dir->root, dir->path, "", &roots, &why) < 0)
		UNS_TRY(uns_catalog_problem_or_fail(cat, UNS_SCOPE_ALL, &why, err));
	find_buckets(cat);
	if (cat->summary.is_megatron)
		UNS_TRY(torch_dist ? read_common_file(dir, cat, err) : uns_megatron_fsdp_common_read(cat, err));
	UNS_TRY(step_of_training(dir, cat, err));
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
