/* ema: the moving mean of the weights that the training kept and saved under a key of its own: files as the view
 * weights has them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/safetensors_file.h"
#include "model/cover.h"
#include "names/ema_names.h"
#include "views/view.h"

static bool is_of_mean(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_OTHER && uns_ema_is_key(t->root) && uns_ema_weight(t->name);
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t n = 0;

	(void)parameter;
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why));
	for (; t < end; t++) {
		if (!is_of_mean(t))
			continue;
		UNS_TRY(uns_cover_check(cat, t, why));
		n++;
	}
	return n ? 0 : UNS_CATALOG_FAIL(cat, why, NO_EMA, .scope = UNS_SCOPE_NOTE);
}

static int choose_tensors(const struct uns_view_input *in, struct uns_vtree *out, struct uns_named_tensor **v,
			  size_t *n, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	UNS_TRY_ALLOC(*v = calloc(cat->n_tensors + 1, sizeof(**v)), err);
	for (; t < end; t++)
		if (is_of_mean(t))
			(*v)[(*n)++] = (struct uns_named_tensor){ uns_ema_weight(t->name), t, t->dtype, NULL };
	if (!in->keep_names)
		UNS_TRY(uns_published_apply(&in->config_info, in->base, v, n, out, err));
	return uns_expert_forms_apply(cat, &in->config_info, in->experts, v, n, out, err);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const struct uns_companion *c = in->borrowed, *end = c + in->n_borrowed;
	size_t n = 0;

	(void)parameter;
	UNS_TRY(choose_tensors(in, out, &v, &n, err));
	UNS_TRY(uns_part_safetensors_set(in->catalog, v, n, uns_config_stem(&in->config_info), in->max_shard_size_bytes,
					 "assembled from the moving mean of the weights that the checkpoint has", out,
					 err));
	for (; c < end; c++)
		if (!c->of_base && strcmp(uns_path_name(c->name), "adapter_config.json") != 0)
			UNS_TRY(uns_vtree_add_file(out, in->catalog, c->name, c->file, err));
	return uns_vtree_note_findings(out, in->notes, in->n_notes, err);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	size_t n = 0;

	return in->experts == UNS_EXPERTS_PUBLISHED ? 0 : choose_tensors(in, out, &v, &n, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	(void)parameter;
	(void)is_file;
	return uns_span_left(&in->config) ? uns_config_loader(&in->config_info) : UNS_LINE_OF_FILES;
}

/* Most trainings keep none. */
static const char *const listed[] = { NULL };

extern const struct uns_view uns_view_ema;
const struct uns_view uns_view_ema = {
	.name = "ema",
	.listed = listed,
	.parse = uns_view_parse_bare,
	.needs_companions = true,
	.opens_files = true,
	.supports = supports,
	.tree = tree,
	.notes = notes,
	.usage = usage,
};
