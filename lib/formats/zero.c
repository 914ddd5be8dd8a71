/* zero: what DeepSpeed's engine saves, ZeRO stages 0 to 3, by itself or below Hugging Face Trainer,
 * Accelerate or Lightning.
 *
 *   TAG/mp_rank_00_model_states.pt  [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt ..
 *
 * Owns which directories hold it. Where a tag lies, and what trainers put beside it, is
 * zero/run.h's; what is in the shards is zero/open.h's. */
#include "formats/format.h"

#include "base/cleanup.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "zero/run.h"

/* A universal directory holds model files too, and zero/ instead of shards. */
static bool is_tag(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	if (uns_zero_count(list, UNS_ZERO_OPTIM))
		return true;
	return uns_zero_count(list, UNS_ZERO_MODEL) && (!zero || zero->kind == UNS_KIND_FILE);
}

static struct uns_zero_run run_of(const struct uns_directory *dir)
{
	return (struct uns_zero_run){ .root = dir->root,
				      .capture = dir->capture,
				      .path = dir->path,
				      .list = dir->list,
				      .is_tag = is_tag,
				      .latest = "latest" };
}

static int probe(const struct uns_directory *dir)
{
	struct uns_zero_run run = run_of(dir);

	return uns_zero_run_probe(&run);
}

static bool begun(const struct uns_directory *dir)
{
	struct uns_zero_run run = run_of(dir);

	return uns_zero_run_begun(&run);
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options,
		    struct uns_catalog *cat, struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_run_fini) struct uns_zero_run run = run_of(dir);

	(void)options;
	UNS_TRY(uns_zero_run_add(&run, cat, err));
	cat->summary.format = "zero";
	cat->summary.family = UNS_FAMILY_ZERO;
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_empty_group_find(cat, err));
	return uns_catalog_seal(cat, err);
}

extern const struct uns_format uns_format_zero;
static const char *const marks[] = { "latest", NULL };

const struct uns_format uns_format_zero = {
	.name = "zero",
	.family = UNS_FAMILY_ZERO,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
	.marks = marks,
	.marks_up = 1,
};
