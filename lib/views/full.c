/* full: one process's complete checkpoint, as a Trainer or Accelerate script without FSDP or DeepSpeed
 * resumes from it: model.safetensors (pytorch_model.bin for Accelerate without a config), optimizer.pt
 * with integer ids (optimizer.bin for Accelerate), scheduler, random states, trainer_state.json. Of a
 * plain DeepSpeed engine Accelerate's names, and the script's own state. Never pytorch_model_fsdp.bin or a
 * sharded directory: a plain Trainer refuses a directory that holds one. */
#include <string.h>

#include "zero/engine_files.h"
#include "files/full_files.h"
#include "files/lightning_file.h"
#include "views/view.h"

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	if (cat->facts.is_pipeline) /* numbers would have to be made up */
		return uns_catalog_fail(
			cat,
			UNS_FINDING(.id = UNS_FOUND_PIPELINE_NUMBERS, .scope = UNS_SCOPE_OPTIMIZER),
			why);
	if (cat->facts.is_one_file)
		return uns_lightning_check(cat, true, why);
	return uns_full_check(cat, why);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
		struct uns_err *err)
{
	struct uns_full_input full = { .resume = uns_view_resume(in),
				       .tied = in->tied,
				       .n_tied = in->n_tied,
				       .notes = in->notes,
				       .n_notes = in->n_notes,
				       .max_shard_size_bytes = in->max_shard_size_bytes };
	const struct uns_lightning_input whole = { .catalog = in->catalog,
						   .out = UNS_DTYPE_NONE,
						   .resume = true,
						   .global_step = in->catalog->facts.step };

	bool engine = in->catalog->facts.resumed_by & UNS_BY_ENGINE;
	bool accelerate = in->catalog->facts.resumed_by & UNS_BY_ACCELERATE;
	bool trainer = !engine && !accelerate;

	(void)parameter;
	if (in->catalog->facts.is_one_file)
		return uns_lightning_add(&whole, out, err);
	full.resume.one_process = true;
	full.resume.plain = uns_full_is_plain(in->catalog);
	/* Accelerate loads safetensors by way of safetensors.load_model, which refuses a file that
	 * holds both names of a tied tensor; and without a config nobody can say which are. */
	if (!trainer && !full.resume.plain && uns_span_left(&in->config) == 0)
		UNS_TRY(uns_full_add_torch_model(&full, "pytorch_model", out, err));
	else
		UNS_TRY(uns_full_add_safetensors(&full, out, err));
	UNS_TRY(uns_full_add_optimizer(&full, UNS_IDS_NUMBERS,
				       trainer ? "optimizer.pt" : "optimizer.bin", out, err));
	if (engine)
		UNS_TRY(uns_engine_files_add(in->catalog, out, err));
	UNS_TRY(uns_engine_scaler_add(in->catalog, out, err));
	return uns_full_add_rest(&full, out, err);
}

static const char *usage(const struct uns_catalog *cat)
{
	if (cat->facts.resumed_by & UNS_BY_ENGINE)
		return "model.load_state_dict(torch.load(\"%s/pytorch_model.bin\"))  # optimizer.bin, "
		       "scheduler.bin, client_state.pt likewise";
	if (cat->facts.family == UNS_FAMILY_RANKS)
		return "torch.load(\"%s/optimizer.pt\", weights_only=True)";
	return cat->facts.resumed_by & UNS_BY_ACCELERATE
		       ? "accelerator.load_state(\"%s\")"
		       : "trainer.train(resume_from_checkpoint=\"%s\")";
}

extern const struct uns_view uns_view_full;
const struct uns_view uns_view_full = {
	.name = "full",
	UNS_VIEW_IS_BARE,
	.needs_finished = true,
	.needs_companions = true,
	.needs_training = true,
	.supports = supports,
	.tree = tree,
	.form = UNS_FORM_FILE,
	.file_usage = "trainer.fit(model, ckpt_path=\"%s\")",
	.usage = usage,
};
