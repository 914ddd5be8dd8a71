/* megatron: what Megatron-LM saves with --ckpt-format torch, a directory for each model-parallel rank.
 *
 *   RUN/iter_0000010/mp_rank_00/model_optim_rng.pt, mp_rank_01/...      RUN/release/ with no number of steps
 *   RUN/latest_checkpointed_iteration.txt                              comes last
 *   RUN/mca_config.json                                                mcore_adapter's (LLaMA-Factory)
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
	struct uns_err why = { 0 };
	const char *path;
	size_t i;

	*out = false;
	for (i = 0; i < dir->list->n; i++) {
		if (dir->list->v[i].kind == UNS_KIND_FILE || !uns_megatron_is_rank_dir(dir->list->v[i].name))
			continue;
		path = uns_path_join(&arena, dir->path, dir->list->v[i].name);
		path = path ? uns_path_join(&arena, path, UNS_MEGATRON_RANK_FILE) : NULL;
		*out = (path ? uns_is_there(dir->root, dir->capture, path, &why) : uns_oom(&why)) == 1;
		uns_capture_note_fault(dir->capture, &why);
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

/* What is in the directory above. */
struct above {
	struct uns_arena arena;
	const struct uns_root *root;
	const char *path; /* NULL = it may not be looked into */
	struct uns_megatron_config_place config;
};

static void above_fini(struct above *a)
{
	uns_arena_fini(&a->arena);
}

static int above_find(const struct uns_directory *dir, struct above *a, struct uns_err *err)
{
	const char *config;
	int there;

	UNS_TRY(uns_root_up(dir->root, dir->path, &a->arena, &a->root, &a->path, err));
	if (!a->path)
		return 0;
	UNS_TRY_ALLOC(config = uns_path_join(&a->arena, a->path, UNS_MEGATRON_MCA_CONFIG), err);
	UNS_TRY(there = uns_is_there(a->root, dir->capture, config, err));
	if (there)
		a->config = (struct uns_megatron_config_place){ a->root, config };
	return 0;
}

/* *step: the tracker's; UNS_UNKNOWN = there is none. */
static int tracker_read(struct above *a, int64_t *step, struct uns_err *err)
{
	const char *path = a->path ? uns_path_join(&a->arena, a->path, TRACKER) : NULL;
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	*step = UNS_UNKNOWN;
	if (!path)
		return a->path ? uns_oom(err) : 0;
	code = uns_root_read_file(a->root, path, UNS_TRACKER_MAX_BYTES, &a->arena, &text, NULL, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0 || uns_rank_tracker_parse(TRACKER, text, step, NULL) < 0)
		*step = UNS_UNKNOWN;
	return 0;
}

/* mcore_adapter's directory is always iter_0000001, and the one above has the step. */
static int find_summary(const struct uns_directory *dir, struct above *a, struct uns_summary *s, struct uns_err *err)
{
	const int64_t iteration = uns_beside_iteration(dir->root, dir->path);
	int64_t saved;

	UNS_TRY(above_find(dir, a, err));
	UNS_TRY(tracker_read(a, &saved, err));
	s->format = "megatron";
	s->family = UNS_FAMILY_MEGATRON;
	s->framework = a->config.path ? "mcore_adapter (LLaMA-Factory), one file per model-parallel rank"
				      : "Megatron-LM, one file per model-parallel rank";
	s->is_megatron = true;
	s->step = a->config.path ? uns_beside_named_step(a->root, a->path, "checkpoint-") : iteration;
	s->world_size = UNS_UNKNOWN;
	s->finished = iteration != UNS_UNKNOWN && saved >= iteration;
	return 0;
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	UNS_CLEANUP(above_fini) struct above above = { .path = NULL };

	(void)options;
	UNS_TRY(find_summary(dir, &above, &cat->summary, err));
	UNS_TRY(uns_megatron_rank_files_add(cat, dir, &above.config, err));
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
