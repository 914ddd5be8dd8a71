/* mean-K: the weights of K checkpoints of a run up to this one, averaged: files as the view weights has them. The
 * catalog is made of all K (session/means.c): its weights are computed when they are read. */
#include "base/path.h"
#include "model/cover.h"
#include "views/view.h"

enum { MIN_CHECKPOINTS = 2, MAX_CHECKPOINTS = 64 };

extern const struct uns_view uns_view_weights;

static bool parse(const char *parameter, uint64_t *out)
{
	unsigned long long n;

	if (!uns_str_number(parameter, "", "", &n) || n < MIN_CHECKPOINTS || n > MAX_CHECKPOINTS)
		return false;
	*out = n;
	return true;
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why));
	if (cat->n_averaged != parameter)
		return uns_fail(why, -EINVAL, "%s was opened without the checkpoints before it", cat->path);
	return uns_view_weights.supports(cat, UNS_DTYPE_NONE, why);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	(void)parameter;
	return uns_view_weights.tree(in, UNS_DTYPE_NONE, out, err);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	return in->experts == UNS_EXPERTS_PUBLISHED ? 0 : uns_view_weights.notes(in, out, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	(void)parameter;
	return uns_view_weights.usage(in, UNS_DTYPE_NONE, is_file);
}

/* Made by looking it up: which K is wanted is not known. */
static const char *const listed[] = { NULL };

extern const struct uns_view uns_view_mean;
const struct uns_view uns_view_mean = {
	.name = "mean",
	.listed = listed,
	.placeholder = "K",
	.parse = parse,
	.needs_companions = true,
	.of_run = true,
	.opens_files = true,
	.supports = supports,
	.tree = tree,
	.notes = notes,
	.usage = usage,
};
