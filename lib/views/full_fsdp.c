/* full-fsdp: the same checkpoint as FSDP's FULL_STATE_DICT names it, for a Trainer or Accelerate
 * script that runs with it: pytorch_model_fsdp.bin and optimizer.bin keyed by names, the ranks' own
 * random states. */
#include "parts/full_files.h"
#include "views/view.h"

static bool parse(const char *parameter, uint64_t *out)
{
	*out = 0;
	return !*parameter;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	UNS_TRY(uns_full_check_names(cat, why));
	return uns_full_check(cat, why);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
		struct uns_err *err)
{
	const struct uns_full_input full = {
		.resume = { .catalog = in->catalog,
			    .borrowed = in->borrowed,
			    .n_borrowed = in->n_borrowed,
			    .training = in->training,
			    .trainer_state_valid = in->trainer_state_valid,
			    .hide_rng = in->hide_rng },
		.notes = in->notes,
		.n_notes = in->n_notes,
	};

	(void)parameter;
	UNS_TRY(uns_full_add_torch_model(&full, "pytorch_model_fsdp", out, err));
	UNS_TRY(uns_full_add_optimizer(&full, UNS_IDS_NAMES, "optimizer.bin", out, err));
	return uns_full_add_rest(&full, out, err);
}

static const char *const listed[] = { "", NULL };

extern const struct uns_view uns_view_full_fsdp;
const struct uns_view uns_view_full_fsdp = {
	.name = "full-fsdp",
	.listed = listed,
	.parse = parse,
	.needs_finished = true,
	.needs_companions = true,
	.needs_training = true,
	.supports = supports,
	.tree = tree,
	.usage = "trainer.train(resume_from_checkpoint=\"%s\")  # with FSDP, FULL_STATE_DICT",
};
