/* full-fsdp: the same checkpoint as FSDP's FULL_STATE_DICT names it, for a Trainer or Accelerate
 * script that runs with it: pytorch_model_fsdp.bin and optimizer.bin keyed by names, the ranks' own
 * random states. */
#include "files/full_files.h"
#include "files/lightning_file.h"
#include "views/view.h"

static bool parse(const char *parameter, uint64_t *out)
{
	*out = 0;
	return !*parameter;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	if (cat->facts.is_one_file)
		return uns_lightning_check(cat, true, why);
	UNS_TRY(uns_full_check_names(cat, why));
	return uns_full_check(cat, why);
}

static int lightning_tree(const struct uns_view_input *in, struct uns_vtree *out,
			  struct uns_err *err)
{
	const struct uns_lightning_input file = { .catalog = in->catalog,
						  .out = UNS_DTYPE_NONE,
						  .resume = true,
						  .for_fsdp = true,
						  .global_step = in->catalog->facts.step };

	return uns_lightning_add(&file, out, err);
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
	if (in->catalog->facts.is_one_file)
		return lightning_tree(in, out, err);
	UNS_TRY(uns_full_add_torch_model(&full, "pytorch_model_fsdp", out, err));
	UNS_TRY(uns_full_add_optimizer(&full, UNS_IDS_NAMES, "optimizer.bin", out, err));
	return uns_full_add_rest(&full, out, err);
}

static const char *usage(const struct uns_catalog *cat)
{
	if (cat->facts.resumed_by & UNS_BY_LIGHTNING)
		return "torch.load(\"%s/optimizer.bin\", weights_only=True)";
	return cat->facts.resumed_by & UNS_BY_ACCELERATE
		       ? "accelerator.load_state(\"%s\")  # with FSDP, FULL_STATE_DICT"
		       : "trainer.train(resume_from_checkpoint=\"%s\")  # with FSDP, FULL_STATE_DICT";
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
	.form = UNS_FORM_FILE,
	.file_usage = "trainer.fit(model, ckpt_path=\"%s\")  # FSDPStrategy",
	.usage = usage,
};
