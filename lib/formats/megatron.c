/* megatron: what Megatron-LM saves with --ckpt-format torch, a directory for each model-parallel rank.
 *
 *   RUN/iter_0000010/mp_rank_00/model_optim_rng.pt, mp_rank_01/...      RUN/release/ with no number of steps
 *   RUN/latest_checkpointed_iteration.txt                              comes last
 *
 * Owns the directories' names and the facts; the files are megatron/rank_files.h's. */
#include "formats/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/beside.h"
#include "files/resume_files.h"
#include "megatron/rank_files.h"
#include "ranks/tracker.h"

static const char TRACKER[] = "latest_checkpointed_iteration.txt";

/* Is there a rank's directory with (*out) or without a file of the model? */
static bool has_ranks(const struct uns_directory *dir, bool *out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path;
	size_t i;

	*out = false;
	for (i = 0; i < dir->list->n; i++) {
		if (dir->list->v[i].kind == UNS_KIND_FILE || !uns_megatron_is_rank_dir(dir->list->v[i].name))
			continue;
		path = uns_path_join(&arena, dir->path, dir->list->v[i].name);
		path = path ? uns_path_join(&arena, path, UNS_MEGATRON_RANK_FILE) : NULL;
		*out = path && uns_is_there(dir->root, dir->capture, path, NULL) == 1;
		return true;
	}
	return false;
}

static int probe(const struct uns_directory *dir)
{
	bool whole;

	return has_ranks(dir, &whole) && whole ? 90 : 0;
}

static bool begun(const struct uns_directory *dir)
{
	bool whole;

	return has_ranks(dir, &whole) && !whole;
}

/* Has the tracker come to this step? */
static int find_finished(const struct uns_directory *dir, struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const struct uns_root *root = dir->root;
	const char *path = dir->path;
	struct uns_err why = { 0 };
	struct uns_span text;
	int64_t saved;
	int code;

	UNS_TRY(uns_root_up(root, path, &scratch, &root, &path, err));
	if (!path)
		return 0;
	UNS_TRY_ALLOC(path = uns_path_join(&scratch, path, TRACKER), err);
	code = uns_root_read_file(root, path, UNS_TRACKER_MAX_BYTES, &scratch, &text, NULL, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code == 0 && uns_rank_tracker_parse(TRACKER, text, &saved, NULL) == 0)
		cat->summary.finished = cat->summary.step != UNS_UNKNOWN && saved >= cat->summary.step;
	return 0;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	(void)options;
	cat->summary.format = "megatron";
	cat->summary.family = UNS_FAMILY_MEGATRON;
	cat->summary.framework = "Megatron-LM, one file per model-parallel rank";
	cat->summary.is_megatron = true;
	cat->summary.step = uns_beside_iteration(dir->root, dir->path);
	cat->summary.world_size = UNS_UNKNOWN;
	UNS_TRY(find_finished(dir, cat, err));
	UNS_TRY(uns_megatron_rank_files_add(cat, dir, err));
	UNS_TRY(uns_beside_add(cat, dir->root, dir->path, "", dir->list, err));
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	return uns_catalog_seal(cat, err);
}

static const char *const marks[] = { TRACKER, NULL };

extern const struct uns_format uns_format_megatron;
const struct uns_format uns_format_megatron = {
	.name = "megatron",
	.family = UNS_FAMILY_MEGATRON,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
	.marks = marks,
	.marks_up = 1,
};
