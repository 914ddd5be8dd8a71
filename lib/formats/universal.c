/* universal: what ds_to_universal makes of a DeepSpeed checkpoint, of either stage family.
 *
 *   RUN/latest_universal   (text: the tag)
 *   RUN/TAG/mp_rank_00_model_states.pt or zero_pp_rank_*_model_states.pt    as in the source
 *   RUN/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt  zero/optimizer_state.pt
 *
 * Owns which directories hold it; a native checkpoint beside it in the same RUN goes first (format
 * zero). What is in zero/ is zero/read/universal.h's. */
#include "formats/format.h"

#include "zero/names.h"
#include "zero/read/run.h"

static bool is_tag(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	return zero && zero->kind != UNS_KIND_FILE && uns_zero_count(list, UNS_ZERO_MODEL) &&
	       !uns_zero_count(list, UNS_ZERO_OPTIM);
}

static const struct uns_zero_form form = {
	.name = "universal",
	.family = UNS_FAMILY_UNIVERSAL,
	.is_tag = is_tag,
	.latest = "latest_universal",
};

/* Lower than the native form's answers, 90 and 95. */
static int probe(const struct uns_directory *dir)
{
	int sure = uns_zero_run_probe(&form, dir);

	return sure ? sure - 2 : 0;
}

static bool begun(const struct uns_directory *dir)
{
	return uns_zero_run_begun(&form, dir);
}

static int open_dir(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		    struct uns_err *err)
{
	(void)options;
	return uns_zero_run_open(&form, dir, cat, err);
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
