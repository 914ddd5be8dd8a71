/* dcp: a torch distributed checkpoint, for loaders that reshard by themselves. A checkpoint that is one already is
 * shown unchanged, once it is whole. A DeepSpeed checkpoint becomes one, and so does one in files of the whole model:
 * what FSDP's sharded resume of a Trainer or Accelerate reads, or, from a plain engine, one directory. */
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/cover.h"
#include "dcp/made.h"
#include "files/masters.h"
#include "files/named_optimizer.h"
#include "files/optimizer_state.h"
#include "files/resume_files.h"
#include "views/view.h"

/* ".metadata", or "__0.metadata" of a save without collectives; in a sub-directory too. */
static bool has_metadata(const struct uns_catalog *cat)
{
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;
	unsigned long long rank;

	for (; c < end; c++)
		if (c->shard && (strcmp(uns_path_name(c->name), ".metadata") == 0 ||
				 uns_str_number(uns_path_name(c->name), "__", ".metadata", &rank)))
			return true;
	return false;
}

static int refuse_problem(const struct uns_catalog *cat, bool passed_through, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_findings; i++) {
		const struct uns_finding *f = &cat->findings[i];

		/* What unshard cannot read (-ENOTSUP) torch may, where files are passed through. */
		if (f->scope != UNS_SCOPE_NOTE && (f->code != -ENOTSUP || !passed_through))
			return uns_fail_with(why, f);
	}
	return 0;
}

static int supports_own(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	UNS_TRY(refuse_problem(cat, true, why));
	for (i = 0; i < cat->n_companions; i++) {
		const struct uns_file *f = &cat->files[cat->companions[i].file];

		if (f->missing)
			return UNS_CATALOG_FAIL(cat, why, FILE_MISSING, .scope = UNS_SCOPE_ALL, .file = f->path);
	}
	for (i = 0; i < cat->n_tensors; i++)
		UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

/* -- made of a checkpoint in another form -- */

/* Can it be one? Of DeepSpeed's engine; and what a Trainer or Accelerate saved as files of the whole model. */
static bool may_be_made(const struct uns_catalog *cat)
{
	const struct uns_summary *s = &cat->summary;

	return s->has_engine_state || ((s->family == UNS_FAMILY_WHOLE || s->family == UNS_FAMILY_DCP) &&
				       s->resumed_by & (UNS_BY_TRAINER | UNS_BY_ACCELERATE) && !s->is_one_file);
}

static int supports_made(const struct uns_catalog *cat, struct uns_err *why)
{
	const char *root = uns_optimizer_root(cat);
	size_t i;

	if (uns_family_is_deepspeed(cat->summary.family))
		UNS_TRY(refuse_problem(cat, false, why));
	if (!may_be_made(cat))
		return UNS_CATALOG_FAIL(cat, why, NO_METADATA, .scope = UNS_SCOPE_ALL);
	if (cat->summary.is_pipeline)
		return UNS_CATALOG_FAIL(cat, why, PIPELINE_NAMES, .scope = UNS_SCOPE_ALL);
	if (cat->summary.is_autoep)
		return UNS_CATALOG_FAIL(cat, why, AUTOEP_ALONE, .scope = UNS_SCOPE_ALL);
	if (uns_numbered_has_optimizer(cat))
		return uns_numbered_check(cat, why);
	UNS_TRY(uns_optimizer_check(cat, root, why));
	if (!root)
		return UNS_CATALOG_FAIL(cat, why, OPTIMIZER_STATES_UNNAMED, .scope = UNS_SCOPE_OPTIMIZER);
	UNS_TRY(uns_optimizer_check_hyper(cat, why));
	UNS_TRY(uns_masters_check(cat, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_WEIGHT || cat->tensors[i].role == UNS_ROLE_BUFFER)
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

/* What Trainer and Accelerate call them (accelerate/utils/constants.py); a plain engine's are one.
 */
static bool is_two(const struct uns_catalog *cat)
{
	return cat->summary.resumed_by & (UNS_BY_TRAINER | UNS_BY_ACCELERATE);
}

static int tree_made(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct uns_resume_input resume = uns_view_resume(in);
	const struct uns_catalog *cat;
	struct uns_dcp_made *made;

	UNS_TRY(uns_numbered_name(&in->config_info, in->config, in->catalog, out, &cat, err));
	UNS_TRY(uns_dcp_made_new(cat, &out->arena, &scratch, &made, err));
	/* A Trainer with FSDP loads PEFT's own state dict, Accelerate the model's. */
	UNS_TRY(uns_dcp_made_add_model(made, cat->summary.resumed_by & UNS_BY_TRAINER, err));
	if (is_two(cat)) {
		UNS_TRY(uns_dcp_made_finish(made, "pytorch_model_fsdp_0", out, err));
		UNS_TRY(uns_dcp_made_new(cat, &out->arena, &scratch, &made, err));
	}
	UNS_TRY(uns_dcp_made_add_optimizer(made, uns_training_step(in->training, cat->summary.step), err));
	UNS_TRY(uns_dcp_made_finish(made, is_two(cat) ? "optimizer_0" : "", out, err));
	resume.schedule_for = UNS_SCHEDULE_FOR_TRAINER;
	resume.with_schedule = true;
	return uns_resume_files_add(&resume, out, err);
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	return has_metadata(cat) ? supports_own(cat, why) : supports_made(cat, why);
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why)
{
	(void)parameter;
	return uns_numbered_check_names(&in->config_info, in->config, in->catalog, why);
}

/* -- as it is -- */

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	const struct uns_resume_input resume = { .catalog = cat,
						 .training = in->training,
						 .trainer_state_valid = in->trainer_state_valid };
	size_t i;

	(void)parameter;
	if (!has_metadata(cat))
		return tree_made(in, out, err);
	for (i = 0; i < cat->n_companions; i++) {
		const char *name = cat->companions[i].name;
		/* A trainer_state.json that no Trainer would take. */
		bool is_useless = in->training && !in->trainer_state_valid &&
				  (cat->summary.resumed_by & UNS_BY_TRAINER) && strcmp(name, "trainer_state.json") == 0;

		if (!is_useless && !(in->hide_rng && uns_resume_is_rng(name)))
			UNS_TRY(uns_vtree_add_file(out, cat, name, cat->companions[i].file, err));
	}
	UNS_TRY(uns_resume_trainer_state_add(&resume, out, err));
	return uns_vtree_note_findings(out, in->notes, in->n_notes, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	const struct uns_catalog *cat = in->catalog;

	(void)parameter, (void)is_file;
	if (cat->summary.resumed_by & UNS_BY_FABRIC && cat->summary.is_one_file)
		return UNS_LINE_OF_FABRIC;
	if (cat->summary.is_weights_only)
		return "trainer.validate(model, ckpt_path=\"%s\")";
	if (cat->summary.is_one_file)
		return "trainer.fit(model, ckpt_path=\"%s\")";
	if (!cat->summary.is_in_parts && (has_metadata(cat) || !is_two(cat)))
		return "torch.distributed.checkpoint.load(state_dict, checkpoint_id=\"%s\")";
	return cat->summary.resumed_by & UNS_BY_ACCELERATE
		       ? "accelerator.load_state(\"%s\")  # with FSDP, SHARDED_STATE_DICT, any "
			 "number of ranks"
		       : "trainer.train(resume_from_checkpoint=\"%s\")  # with FSDP, "
			 "SHARDED_STATE_DICT, any number of ranks";
}

extern const struct uns_view uns_view_dcp;
const struct uns_view uns_view_dcp = {
	.name = "dcp",
	UNS_VIEW_IS_BARE,
	.needs_finished = true,
	.needs_training = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.usage = usage,
};
