/* full-fsdp: the same checkpoint as FSDP's FULL_STATE_DICT names it, for a Trainer or Accelerate
 * script that runs with it: pytorch_model_fsdp.bin and optimizer.bin keyed by names, the ranks' own
 * random states. A view of its own beside full, and no parameter of it: which checkpoints it supports, which
 * files it has and which line loads it are all others; what makes the files is files/full_files.h's for both. */
#include "files/full_files.h"
#include "files/lightning_file.h"
#include "views/view.h"

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	if (cat->facts.is_one_file)
		return uns_lightning_check(cat, true, why);
	UNS_TRY(uns_full_check_names(cat, why));
	return uns_full_check(cat, why);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
		struct uns_err *err)
{
	const struct uns_full_input full = { .resume = uns_view_resume(in),
					     .notes = in->notes,
					     .n_notes = in->n_notes };
	const struct uns_lightning_input whole = { .catalog = in->catalog,
						   .out = UNS_DTYPE_NONE,
						   .resume = true,
						   .for_fsdp = true,
						   .global_step = in->catalog->facts.step };


	(void)parameter;
	if (in->catalog->facts.is_one_file)
		return uns_lightning_add(&whole, out, err);
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

extern const struct uns_view uns_view_full_fsdp;
const struct uns_view uns_view_full_fsdp = {
	.name = "full-fsdp",
	UNS_VIEW_IS_BARE,
	.needs_finished = true,
	.needs_companions = true,
	.needs_training = true,
	.supports = supports,
	.tree = tree,
	.form = UNS_FORM_FILE,
	.file_usage = "trainer.fit(model, ckpt_path=\"%s\")  # FSDPStrategy",
	.usage = usage,
};
