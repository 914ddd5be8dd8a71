/* The writer of view world-N for veRL and EasyR1: model, optimizer and extra_state file of each of N ranks.
 *
 * A sharded tensor is cut by rows: rank r of N holds the r-th ceil(rows / N) of them, as FSDP2 does. ranks/shard_file.c
 * makes a file's dict and its layout; ranks/dtensor_new.c makes
 * the DTensor around them, as the torch that saved the checkpoint spells it. This file owns which files there are, and
 * the companions beside them. Source of the dicts: verl 0.9.1 and EasyR1 b44b311, fsdp_checkpoint_manager.py;
 * torch/optim/optimizer.py, state_dict. */
#include "ranks/world_view.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "model/cover.h"
#include "ranks/names.h"
#include "ranks/shard_file.h"

static bool has_kind(const struct uns_catalog *cat, enum uns_rank_kind kind)
{
	struct uns_rank_name name;
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (uns_rank_name_parse(cat->companions[i].name, &name) && name.kind == kind &&
		    name.world == cat->summary.world_size)
			return true;
	return false;
}

/* -- supports -- */

int uns_world_ranks_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why)
{
	enum { MAX_SHARDS = 1 << 18 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_rank_shard shard = { .cat = cat, .world = world, .stem = "first" };
	const struct uns_finding *f = cat->findings, *f_end = f + cat->n_findings;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const bool has_extra = has_kind(cat, UNS_RANK_EXTRA);
	struct uns_layout layout;
	char path[PATH_MAX];

	/* A rank's file that is lost does not matter here if replicas have all that was in it. */
	for (; f < f_end; f++)
		if (f->scope != UNS_SCOPE_NOTE && (f->scope != UNS_SCOPE_SHARDED || f->code != -ENODATA))
			return uns_fail_with(why, f);
	for (; t < end; t++) {
		/* FSDP1's own state dict of an optimizer: ranges of flattened parameters, without their offsets. */
		if (uns_role_is_optimizer(t->role) && t->inferred && !t->sharded && t->shape.n > 0)
			return UNS_CATALOG_FAIL(cat, why, FLAT_OPTIMIZER, .scope = UNS_SCOPE_OPTIMIZER);
		if (t->sharded && !t->shape.n)
			return UNS_CATALOG_FAIL(cat, why, TENSOR_WITHOUT_ROWS, .scope = UNS_SCOPE_ALL,
						.tensor = t->key);
		UNS_TRY(uns_cover_check(cat, t, why));
	}
	/* Each rank's pickle has about 1 KB for every tensor. */
	if (world * cat->n_tensors > MAX_SHARDS)
		return UNS_CATALOG_FAIL(cat, why, TOO_MANY_SHARDS, .scope = UNS_SCOPE_ALL,
					.arg = { { "n", uns_num(cat->n_tensors) },
						 { "ranks", uns_num(world) },
						 { "most", uns_num(MAX_SHARDS) } });
	if (has_extra && !uns_rank_shard_value(cat, "lr_scheduler")) {
		snprintf(path, sizeof(path), "%s%sextra_state_world_size_%lld_rank_0.pt", cat->path,
			 *cat->path ? "/" : "", (long long)cat->summary.world_size);
		return UNS_CATALOG_FAIL(cat, why, SCHEDULER_UNREADABLE, .scope = UNS_SCOPE_OPTIMIZER, .file = path,
					.rank = uns_rank(0));
	}
	UNS_TRY(uns_rank_shard_model(&shard, &arena, &layout, why));
	UNS_TRY(uns_rank_shard_optim(&shard, &arena, &layout, why));
	return has_extra ? uns_rank_shard_extra(&shard, &arena, &layout, why) : 0;
}

/* -- files -- */

typedef int make_layout(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			struct uns_err *err);

static int add_made(const struct uns_catalog *cat, enum uns_rank_kind kind, uint64_t world, uint64_t rank,
		    make_layout *make, const char *origin, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_rank_shard shard = { .cat = cat, .world = world, .rank = rank };
	struct uns_vfile file = { .source = UNS_NONE, .origin = origin };

	shard.stem = uns_rank_name_stem(&out->arena, kind, world, rank);
	file.path = uns_arena_printf(&out->arena, "%s.pt", shard.stem);
	UNS_TRY(uns_arena_check(&out->arena, err));
	UNS_TRY(make(&shard, &out->arena, &file.layout, err));
	return uns_vtree_add(out, &file, err);
}

/* Shows the rank's own file if its random states hold for this number of ranks, else a made one without them. */
static int add_extra(const struct uns_catalog *cat, uint64_t world, uint64_t rank, struct uns_world_rng rng,
		     struct uns_vtree *out, struct uns_err *err)
{
	uint64_t saved = (uint64_t)cat->summary.world_size;
	struct uns_arena *arena = &out->arena;
	const char *own_name = uns_arena_printf(arena, "%s.pt", uns_rank_name_stem(arena, UNS_RANK_EXTRA, saved, rank));
	const char *path = uns_arena_printf(arena, "%s.pt", uns_rank_name_stem(arena, UNS_RANK_EXTRA, world, rank));
	const struct uns_companion *own = NULL;

	UNS_TRY(uns_arena_check(arena, err));
	if (!rng.hide && (world == saved || rng.keep))
		own = uns_catalog_companion(cat, own_name);
	if (own)
		return uns_vtree_add_file(out, cat, path, own->file, err);
	return add_made(cat, UNS_RANK_EXTRA, world, rank, uns_rank_shard_extra,
			"the scheduler's state; random states are left out", out, err);
}

static int note_rng(const struct uns_catalog *cat, uint64_t world, struct uns_world_rng rng, struct uns_vtree *out,
		    struct uns_err *err)
{
	uint64_t saved = (uint64_t)cat->summary.world_size;

	if (!rng.hide && (world == saved || (rng.keep && world <= saved)))
		return 0;
	return uns_vtree_note(out, err,
			      "extra_state_*.pt: the random states were saved by %llu ranks and "
			      "are left out%s; a manager that finds none keeps its own",
			      (unsigned long long)saved,
			      rng.hide   ? " (-o rng=hide)"
			      : rng.keep ? " for the additional ranks"
					 : " (-o rng=keep shows them)");
}

/* The text as it was, with another number. */
static int add_config(const struct uns_catalog *cat, uint64_t world, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *was = uns_value_str(uns_rank_shard_value(cat, "fsdp_config"));
	const char *key = was ? strstr(was, "\"world_size\"") : NULL;
	const char *digits = key ? key + strcspn(key, "0123456789") : NULL;

	if (!digits)
		return 0;
	uns_text_printf(&text, "%.*s%llu%s", (int)(digits - was), was, (unsigned long long)world,
			digits + strspn(digits, "0123456789"));
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_add_text(out, "fsdp_config.json", text.p, text.len,
				  "the checkpoint's own, for another number of ranks", err);
}

int uns_world_ranks_add(const struct uns_catalog *cat, uint64_t world, struct uns_world_rng rng, struct uns_vtree *out,
			struct uns_err *err)
{
	static const char cut[] = "the checkpoint's tensors, sharded by rows for another number of ranks";
	bool has_optim = has_kind(cat, UNS_RANK_OPTIM), has_extra = has_kind(cat, UNS_RANK_EXTRA);
	uint64_t r;
	size_t i;

	for (r = 0; r < world; r++) {
		UNS_TRY(add_made(cat, UNS_RANK_MODEL, world, r, uns_rank_shard_model, cut, out, err));
		if (has_optim)
			UNS_TRY(add_made(cat, UNS_RANK_OPTIM, world, r, uns_rank_shard_optim, cut, out, err));
		if (has_extra)
			UNS_TRY(add_extra(cat, world, r, rng, out, err));
	}
	if (has_extra)
		UNS_TRY(note_rng(cat, world, rng, out, err));
	UNS_TRY(add_config(cat, world, out, err));
	/* Shards have no sub-directory, so a companion in a sub-directory (huggingface/) is never a shard. */
	for (i = 0; i < cat->n_companions; i++)
		if (!cat->companions[i].shard || strchr(cat->companions[i].name, '/'))
			UNS_TRY(uns_vtree_add_file(out, cat, cat->companions[i].name, cat->companions[i].file, err));
	return 0;
}
