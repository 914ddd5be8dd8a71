/* dcp: the torch distributed checkpoint as it is on disk, for loaders that reshard by themselves.
 * Owns only the question whether the whole of it is there. */
#include <string.h>

#include "base/path.h"
#include "model/cover.h"
#include "parts/resume_files.h"
#include "views/view.h"

static bool parse(const char *parameter, uint64_t *out)
{
	*out = 0;
	return !*parameter;
}

/* ".metadata", or "__0.metadata" of a save without collectives; in a sub-directory too. */
static bool is_metadata(const struct uns_companion *c)
{
	const char *name = uns_path_name(c->name);
	unsigned long long rank;

	return c->shard &&
	       (strcmp(name, ".metadata") == 0 || uns_str_number(name, "__", ".metadata", &rank));
}

static bool has_metadata(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (is_metadata(&cat->companions[i]))
			return true;
	return false;
}

static int known_problem(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_problems; i++) {
		const struct uns_problem *p = &cat->problems[i];

		/* What we cannot read (-ENOTSUP) torch may: the files are passed through. */
		if (p->scope != UNS_SCOPE_NOTE && p->code != -ENOTSUP)
			return uns_fail(why, p->code ? p->code : -EBADMSG, "%s", p->text);
	}
	return 0;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	size_t i;

	(void)parameter;
	if (!has_metadata(cat))
		return uns_fail(why, -ENOTSUP,
				"%s is not a torch distributed checkpoint: it has no .metadata",
				cat->path);
	UNS_TRY(known_problem(cat, why));
	for (i = 0; i < cat->n_companions; i++) {
		const struct uns_file *f = &cat->files[cat->companions[i].file];

		if (f->missing)
			return uns_fail(why, -ENODATA, "%s is missing", f->path);
	}
	for (i = 0; i < cat->n_tensors; i++)
		UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

/* Everything as it is, but random states that are not wanted and a trainer_state.json that no Trainer
 * would take. */
static bool is_left_out(const struct uns_view_input *in, const char *name)
{
	return (in->hide_rng && uns_resume_is_rng(name)) ||
	       (in->training && !in->trainer_state_valid &&
		strcmp(name, "trainer_state.json") == 0);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
		struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	const struct uns_resume_input resume = { .catalog = cat,
						 .training = in->training,
						 .trainer_state_valid = in->trainer_state_valid };
	size_t i;

	(void)parameter;
	for (i = 0; i < cat->n_companions; i++)
		if (!is_left_out(in, cat->companions[i].name))
			UNS_TRY(uns_vtree_add_file(out, cat, cat->companions[i].name,
						   cat->companions[i].file, err));
	UNS_TRY(uns_resume_trainer_state_add(&resume, out, err));
	for (i = 0; i < in->n_notes; i++)
		if (uns_vtree_note(out, "%s", in->notes[i]) < 0)
			return uns_fail(err, -ENOMEM, "out of memory");
	return 0;
}

static const char *usage(const struct uns_catalog *cat)
{
	if (strcmp(cat->facts.format, "lightning_fsdp") == 0)
		return "trainer.fit(model, ckpt_path=\"%s\")";
	if (strcmp(cat->facts.format, "hf_fsdp") != 0)
		return "torch.distributed.checkpoint.load(state_dict, checkpoint_id=\"%s\")";
	return uns_resume_is_trainer(cat) ?
		       "trainer.train(resume_from_checkpoint=\"%s\")  # with FSDP, "
		       "SHARDED_STATE_DICT, any number of ranks" :
		       "accelerator.load_state(\"%s\")  # with FSDP, SHARDED_STATE_DICT, any number of "
		       "ranks";
}

static const char *const listed[] = { "", NULL };

extern const struct uns_view uns_view_dcp;
const struct uns_view uns_view_dcp = {
	.name = "dcp",
	.listed = listed,
	.parse = parse,
	.needs_finished = true,
	.needs_training = true,
	.supports = supports,
	.tree = tree,
	.usage = usage,
};
