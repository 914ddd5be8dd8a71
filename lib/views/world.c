/* world-N: the checkpoint's own family of per-rank files, as N ranks would have saved it. Owns the
 * name and the files beside the shards; each family's files are made by zero/write/world_view.c and
 * ranks/world_view.c. */
#include "base/path.h"
#include "files/resume_files.h"
#include "ranks/world_view.h"
#include "zero/write/world_view.h"
#include "views/view.h"

enum { MAX_WORLD = 65536 };

static bool parse(const char *parameter, uint64_t *out)
{
	unsigned long long n;

	if (!uns_str_number(parameter, "", "", &n) || n < 1 || n > MAX_WORLD)
		return false;
	*out = n;
	return true;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	return cat->summary.family == UNS_FAMILY_RANKS ? uns_world_ranks_supports(cat, parameter, why)
						       : uns_world_zero_supports(cat, parameter, why);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_world_rng rng = { .hide = in->hide_rng, .keep = in->keep_rng };
	struct uns_resume_input resume = uns_view_resume(in);

	if (in->catalog->summary.family == UNS_FAMILY_RANKS)
		return uns_world_ranks_add(in->catalog, parameter, rng, out, err);
	UNS_TRY(uns_world_zero_add(in->catalog, parameter, out, err));
	resume.hide_rng |= !in->keep_rng && !uns_world_zero_is_saved(in->catalog, parameter);
	resume.with_schedule = true;
	return uns_resume_files_add(&resume, out, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	const struct uns_catalog *cat = in->catalog;

	(void)parameter, (void)is_file;
	if (cat->summary.resumed_by & UNS_BY_FABRIC)
		return UNS_LINE_OF_FABRIC "  # DeepSpeedStrategy, at N ranks";
	if (cat->summary.resumed_by & UNS_BY_LIGHTNING)
		return "trainer.fit(model, ckpt_path=\"%s\")  # DeepSpeedStrategy, at N ranks";
	if (cat->summary.family == UNS_FAMILY_RANKS)
		return "manager.load_checkpoint(\"%s\")  # at N ranks";
	if (cat->summary.resumed_by & UNS_BY_TRAINER)
		return "trainer.train(resume_from_checkpoint=\"%s\")  # at N ranks";
	/* load_checkpoint(load_dir, tag): a plain engine's checkpoint is a tag's directory. */
	return cat->summary.resumed_by & UNS_BY_ACCELERATE
		       ? "accelerator.load_state(\"%s\")  # at N ranks"
		       : "engine.load_checkpoint(*os.path.split(\"%s\"))  # at N ranks";
}

/* Made by looking it up: which N is wanted is not known. */
static const char *const listed[] = { NULL };

extern const struct uns_view uns_view_world;
const struct uns_view uns_view_world = {
	.name = "world",
	.listed = listed,
	.placeholder = "N",
	.parse = parse,
	.needs_finished = true,
	.needs_training = true,
	.supports = supports,
	.tree = tree,
	.usage = usage,
};
