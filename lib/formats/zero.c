/* zero: what DeepSpeed's engine saves, ZeRO stages 0 to 3, by itself or below Hugging Face Trainer, Accelerate or
 * Lightning. universal: what ds_to_universal makes of such a checkpoint, of either stage family.
 *
 *   RUN/latest             (text: the tag)
 *   RUN/TAG/mp_rank_00_model_states.pt  [bf16_]zero_pp_rank_0_mp_rank_00_optim_states.pt ..
 *   RUN/latest_universal   (text: the tag)
 *   RUN/TAG/mp_rank_00_model_states.pt or zero_pp_rank_*_model_states.pt    as in the source
 *   RUN/TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt  zero/optimizer_state.pt
 *
 * Owns which directories hold them. Where a tag is, and what trainers put beside it, is zero/read/run.h's; what is in
 * the shards is zero/read/open.h's, what is in zero/ is zero/read/universal.h's. */
#include "formats/format.h"

#include "zero/names.h"
#include "zero/read/run.h"

static bool holds_optimizer_files(const struct uns_listing *list)
{
	const struct uns_entry *zero = uns_listing_find(list, "zero");

	return zero && zero->kind != UNS_KIND_FILE;
}

static bool is_zero_tag(const struct uns_listing *list)
{
	return uns_zero_count(list, UNS_ZERO_OPTIM) ||
	       (uns_zero_count(list, UNS_ZERO_MODEL) && !holds_optimizer_files(list));
}

static bool is_universal_tag(const struct uns_listing *list)
{
	return uns_zero_count(list, UNS_ZERO_MODEL) && !is_zero_tag(list);
}

static const struct uns_zero_form zero = { "zero", UNS_FAMILY_ZERO, is_zero_tag, "latest" };
static const struct uns_zero_form universal = { "universal", UNS_FAMILY_UNIVERSAL, is_universal_tag,
						"latest_universal" };

static int probe_zero(const struct uns_directory *dir)
{
	return uns_zero_run_probe(&zero, dir);
}

/* In one RUN, DeepSpeed's own form goes first. */
static int probe_universal(const struct uns_directory *dir)
{
	int sure = uns_zero_run_probe(&universal, dir);

	return sure ? sure - 2 : 0;
}

static int open_zero(const struct uns_directory *dir, const struct uns_format_options *options, struct uns_catalog *cat,
		     struct uns_err *err)
{
	(void)options;
	return uns_zero_run_open(&zero, dir, cat, err);
}

static int open_universal(const struct uns_directory *dir, const struct uns_format_options *options,
			  struct uns_catalog *cat, struct uns_err *err)
{
	(void)options;
	return uns_zero_run_open(&universal, dir, cat, err);
}

extern const struct uns_format uns_format_zero, uns_format_universal;
static const char *const zero_marks[] = { "latest", NULL }, *const universal_marks[] = { "latest_universal", NULL };

const struct uns_format uns_format_zero = {
	.name = "zero",
	.family = UNS_FAMILY_ZERO,
	.probe = probe_zero,
	.begun = uns_zero_run_begun,
	.open = open_zero,
	.marks = zero_marks,
	.marks_up = 1,
};

const struct uns_format uns_format_universal = {
	.name = "universal",
	.family = UNS_FAMILY_UNIVERSAL,
	.probe = probe_universal,
	.open = open_universal,
	.marks = universal_marks,
	.marks_up = 1,
};
