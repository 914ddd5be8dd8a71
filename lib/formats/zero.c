/* zero: what DeepSpeed's engine saves, ZeRO stages 0 to 3, by itself or below Hugging Face Trainer,
 * Accelerate or Lightning.
 *
 *   TAG/mp_rank_00_model_states.pt  [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt ..
 *
 * Owns which directories hold it. Where a tag lies, and what trainers put beside it, is
 * zero/read/run.h's; what is in the shards is zero/read/open.h's. */
#include "formats/format.h"

#include "zero/names.h"
#include "zero/read/run.h"

/* A universal directory holds model files too, and zero/ instead of shards. */
static bool is_tag(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	if (uns_zero_count(list, UNS_ZERO_OPTIM))
		return true;
	return uns_zero_count(list, UNS_ZERO_MODEL) && (!zero || zero->kind == UNS_KIND_FILE);
}

static const struct uns_zero_form form = {
	.name = "zero",
	.family = UNS_FAMILY_ZERO,
	.is_tag = is_tag,
	.latest = "latest",
};

static int probe(const struct uns_directory *dir)
{
	return uns_zero_run_probe(&form, dir);
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
