/* universal: what ds_to_universal makes of a DeepSpeed checkpoint, of either stage family.
 *
 *   RUN/latest_universal   (text: the tag)
 *   RUN/TAG/mp_rank_00_model_states.pt or zero_pp_rank_*_model_states.pt    as in the source
 *   RUN/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt  zero/optimizer_state.pt
 *
 * Owns which directories hold it; a native checkpoint beside it in the same RUN goes first (format
 * zero). What is in zero/ is zero/universal.h's. */
#include "formats/format.h"

#include "base/cleanup.h"
#include "files/adapter.h"
#include "files/resume_files.h"
#include "zero/run.h"

/* Lower than the native form's answers: 90 and 95. */
enum { SURE_LESS = 2 };

static bool is_tag(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	return zero && zero->kind != UNS_KIND_FILE && uns_zero_count(list, UNS_ZERO_MODEL) &&
	       !uns_zero_count(list, UNS_ZERO_OPTIM);
}

static struct uns_zero_run run_of(const struct uns_directory *dir)
{
	return (struct uns_zero_run){ .root = dir->root,
				      .capture = dir->capture,
				      .path = dir->path,
				      .list = dir->list,
				      .is_tag = is_tag,
				      .universal = true,
				      .latest = "latest_universal" };
}

static int probe(const struct uns_directory *dir)
{
	struct uns_zero_run run = run_of(dir);
	int sure = uns_zero_run_probe(&run);

	return sure ? sure - SURE_LESS : 0;
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
	cat->summary.format = "universal";
	cat->summary.family = UNS_FAMILY_UNIVERSAL;
	uns_resume_find(cat);
	UNS_TRY(uns_adapter_find(cat, err));
	UNS_TRY(uns_empty_group_find(cat, err));
	return uns_catalog_seal(cat, err);
}

extern const struct uns_format uns_format_universal;
static const char *const marks[] = { "latest_universal", NULL };

const struct uns_format uns_format_universal = {
	.name = "universal",
	.family = UNS_FAMILY_UNIVERSAL,
	.probe = probe,
	.begun = begun,
	.open = open_dir,
	.marks = marks,
	.marks_up = 1,
};
