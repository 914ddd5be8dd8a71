/* Renames entries. */
#include "megatron/fsdp.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "dcp/item.h"
#include "megatron/args.h"
#include "megatron/common_pickle.h"
#include "megatron/expert_names.h"

static const char MODULE[] = "module.", SCHEDULE[] = UNS_MEGATRON_SCHEDULE;

static const char *past_wrappers(const char *name)
{
	while (uns_str_starts(name, MODULE))
		name += strlen(MODULE);
	return name;
}

/* The index of the path element that is the name of a parameter, or 0: ('model', NAME), ('optimizer', 'state', NAME,
 * state), ('optimizer', 'param_to_group_meta', NAME, key). */
static size_t name_at(const struct uns_dcp_entry *e)
{
	size_t at = 0;

	if (e->n_path == 2 && uns_dcp_step_is(e, 0, "model"))
		at = 1;
	else if (e->n_path == 4 && uns_dcp_step_is(e, 0, "optimizer") &&
		 (uns_dcp_step_is(e, 1, "state") || uns_dcp_step_is(e, 1, "param_to_group_meta")))
		at = 2;
	return at && e->path[at].key ? at : 0;
}

static bool is_group_value(const struct uns_dcp_entry *e)
{
	return name_at(e) == 2 && uns_dcp_step_is(e, 1, "param_to_group_meta");
}

/* A Megatron-Core model has layers, and Megatron-LM saves a version with it. */
static bool is_fsdp(const struct uns_dcp_metadata *meta)
{
	const struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	bool layers = false, version = false;

	for (; e < end && meta->has_paths; e++) {
		layers |= name_at(e) == 1 && uns_str_starts(e->path[1].key, MODULE) &&
			  uns_str_starts(past_wrappers(e->path[1].key), "decoder.layers.");
		version |= e->n_path == 1 && uns_dcp_step_is(e, 0, "checkpoint_version");
	}
	return layers && version;
}

/* -- names -- */

/* Gives the entry a path of its own with another name in it. */
static int entry_name(struct uns_dcp_entry *e, const char *name, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_dcp_step *path = UNS_NEW_N(arena, struct uns_dcp_step, e->n_path);

	UNS_TRY_ALLOC(path && name, err);
	memcpy(path, e->path, e->n_path * sizeof(*path));
	path[name_at(e)].key = name;
	e->path = path;
	return 0;
}

static const char *half(struct uns_arena *arena, const char *name, const char *which)
{
	return uns_arena_printf(arena, "%s%s", name, which);
}

/* The values of the group that gate and up are in belong to both. Entries for `up` are put behind the others. */
static int share_group_values(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map weights = UNS_MAP_INIT;
	const size_t n = meta->n_entries;
	struct uns_dcp_entry *e, *all;
	const char *name, *gate;
	size_t i;

	for (e = meta->entry; e < meta->entry + n; e++)
		if (name_at(e) == 1)
			UNS_TRY_ALLOC(uns_map_put(&weights, e->path[1].key, e, NULL), err);
	UNS_TRY_ALLOC(all = UNS_NEW_N(arena, struct uns_dcp_entry, 2 * n + 1), err);
	memcpy(all, meta->entry, n * sizeof(*all));
	meta->entry = all;
	for (i = 0; i < n; i++) {
		if (!is_group_value(&all[i]))
			continue;
		name = all[i].path[2].key;
		UNS_TRY_ALLOC(gate = half(arena, name, "_w"), err);
		if (uns_map_get(&weights, name) || !uns_map_get(&weights, gate))
			continue;
		all[meta->n_entries] = all[i];
		UNS_TRY(entry_name(&all[meta->n_entries++], half(arena, name, "_v"), arena, err));
		UNS_TRY(entry_name(&all[i], gate, arena, err));
	}
	return 0;
}

int uns_megatron_fsdp_restore(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			      struct uns_err *err)
{
	struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	size_t at;

	if (!is_fsdp(meta))
		return 0;
	cat->summary.is_megatron = true;
	cat->summary.framework = "Megatron-FSDP checkpoint (fsdp_dtensor)";
	for (; e < end; e++) {
		at = name_at(e);
		if (at)
			UNS_TRY(entry_name(e, uns_megatron_expert_name(arena, past_wrappers(e->path[at].key), 0), arena,
					   err));
	}
	return share_group_values(meta, arena, err);
}

/* -- objects -- */

/* The item's bytes, in the arena. */
static int object_bytes(struct uns_catalog *cat, const struct uns_named_value *item, struct uns_arena *scratch,
			struct uns_span *out, struct uns_err *err)
{
	const struct uns_dcp_item_location at = { item->file, item->offset_bytes, item->length_bytes, item->codec };
	UNS_CLEANUP(uns_dcp_reader_fini) struct uns_dcp_reader reader;

	uns_dcp_reader_init(&reader, cat);
	return uns_dcp_item_bytes(&reader, &at, scratch, out, err);
}

static int object_add(struct uns_catalog *cat, const struct uns_named_value *item, struct uns_span bytes,
		      struct uns_arena *scratch, struct uns_err *err)
{
	const bool is_iteration = strcmp(item->name, UNS_MEGATRON_ITERATION) == 0;
	const struct uns_value *v;

	if (*item->root || (!is_iteration && strcmp(item->name, "args") != 0))
		return 0;
	UNS_TRY(uns_dcp_item_value(bytes, scratch, &v, err));
	return is_iteration ? uns_megatron_iteration_add(cat, item->file, v, err)
			    : uns_megatron_args_add(cat, item->file, v, err);
}

/* Is it of the training's state that common.pt has elsewhere: one object, or one of the schedule's dict? Random states
 * are of the ranks that saved them. */
static bool is_common(const struct uns_named_value *item)
{
	return !item->value && item->length_bytes && (!*item->root || strcmp(item->root, SCHEDULE) == 0);
}

static int object_keep(struct uns_catalog *cat, const struct uns_named_value *item, struct uns_megatron_kept *kept,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_span bytes;
	int code;

	UNS_TRY(object_bytes(cat, item, &scratch, &bytes, err));
	UNS_TRY(object_add(cat, item, bytes, &scratch, err));
	code = uns_megatron_kept_add(kept, item->root, item->name, bytes, err);
	return code < 0 ? code : 0;
}

int uns_megatron_fsdp_common_read(struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_megatron_kept_fini) struct uns_megatron_kept kept = { 0 };
	struct uns_err why = { .keep = &cat->arena };
	struct uns_named_value item;
	size_t i, n = cat->n_values;
	uint32_t file = UNS_NONE;
	bool schedule = false;

	for (i = 0; i < n; i++) {
		item = cat->values[i]; /* the array may move */
		if (!is_common(&item))
			continue;
		file = item.file;
		schedule |= *item.root != '\0';
		if (object_keep(cat, &item, &kept, &why) >= 0)
			continue;
		uns_fail_in_file(&why, cat->files[item.file].path);
		return uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err);
	}
	if (schedule)
		UNS_TRY(uns_megatron_schedule_keep(cat, file, err));
	return file == UNS_NONE ? 0 : uns_megatron_kept_finish(&kept, cat, file, err);
}
