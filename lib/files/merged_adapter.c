/* The base model's weights are listed; the adapter's tensors are put together by the module that they are of; each
 * module adds to the sums of its weights (files/merge_module.h). Everything else that was trained takes the place of
 * the base model's (modules_to_save, biases). Source: peft 0.21.2, tuners/tuners_utils.py. */
#include "files/merged_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/adapter_list.h"
#include "files/merge_experts.h"
#include "names/template.h"
#include "names/tie_rows.h"

static const char PREFIX[] = "base_model.model.";

struct merge {
	const struct uns_merge_input *in;
	struct uns_arena *arena;
	struct uns_merged *out;
	struct uns_adapter_settings settings;
	struct uns_merge_sums sums;
	struct uns_map modules; /* name in the base model -> struct uns_merge_module */
	struct uns_merge_experts experts;
	struct uns_named_tensor *v; /* becomes out->v */
};

static void merge_fini(struct merge *m)
{
	uns_adapter_settings_fini(&m->settings);
	uns_merge_sums_fini(&m->sums);
	uns_map_fini(&m->modules);
	uns_merge_experts_fini(&m->experts);
	free(m->v);
}

/* -- the base model -- */

static bool is_tied(const struct uns_merge_input *in, const struct uns_tensor *t)
{
	size_t i = 0;

	while (i < in->n_tied && in->tied[i] != t)
		i++;
	return i < in->n_tied;
}

/* The part of a name in memory that begins with PEFT's own prefix: what is before it is the script's module. */
static const char *from_prefix(const char *name)
{
	const char *at = strstr(name, PREFIX);

	return at ? at : name;
}

static int base_list(struct merge *m, struct uns_err *err)
{
	const struct uns_catalog *cat = m->in->catalog;
	const bool is_saved = cat->summary.adapter == UNS_ADAPTER_AND_BASE;
	const struct uns_tensor *t = is_saved ? cat->tensors : m->in->base->v;
	const struct uns_tensor *end = t + (is_saved ? cat->n_tensors : m->in->base->n);
	const char *name;

	for (; t < end; t++) {
		name = t->name;
		if (is_saved && (!uns_adapter_is_base(t) || is_tied(m->in, t)))
			continue;
		if (is_saved)
			UNS_TRY_ALLOC(name = uns_adapter_base_name(m->arena, PREFIX, from_prefix(name)), err);
		UNS_TRY(uns_merge_sums_put(&m->sums, t, name, err));
	}
	return 0;
}

/* -- the adapter -- */

static int part_add(struct merge *m, const struct uns_tensor *t, const char *name, const char *part,
		    struct uns_err *err)
{
	const enum uns_merge_part is = uns_merge_part_find(m->settings.method, part);
	const char *module = uns_arena_strn(m->arena, name, (size_t)(part - 1 - name));
	struct uns_merge_module *of;

	UNS_TRY_ALLOC(module, err);
	if (is == UNS_N_PARTS)
		return uns_fail(err, -ENOTSUP, "%s is of a kind that unshard does not merge", t->name);
	of = uns_map_get(&m->modules, module);
	if (!of) {
		UNS_TRY_ALLOC(of = UNS_NEW(m->arena, struct uns_merge_module), err);
		of->name = module;
		UNS_TRY_ALLOC(uns_map_put(&m->modules, module, of, NULL), err);
	}
	if (of->part[is])
		return uns_fail(err, -ENOTSUP, "%s and %s are the same part of one module", of->part[is]->name,
				t->name);
	of->part[is] = t;
	return 0;
}

/* The adapter's own tensor takes the place of the base model's. */
static int replace(struct merge *m, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	struct uns_merge_weight *w = uns_merge_sums_find(&m->sums, name);

	if (!w && m->in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE) {
		UNS_TRY(uns_merge_sums_put(&m->sums, t, name, err));
		w = uns_merge_sums_find(&m->sums, name);
	}
	if (!w)
		return uns_fail(err, -ENOTSUP, "the base model has no tensor %s, which the adapter replaces", name);
	if (!uns_shape_equal(&w->shown.tensor->shape, &t->shape))
		return uns_fail(err, -ENOTSUP, "%s has another shape in the adapter than in the base model", name);
	w->shown.tensor = t;
	w->replaced = true;
	return 0;
}

static int adapter_read(struct merge *m, const struct uns_one_adapter *adapter, struct uns_err *err)
{
	const struct uns_catalog *cat = m->in->catalog;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const char *name, *part;

	for (; t < end; t++) {
		if (!uns_adapter_has(adapter, t))
			continue;
		UNS_TRY_ALLOC(name = uns_adapter_name(m->arena, from_prefix(t->name)), err);
		if (!uns_str_starts(name, PREFIX))
			return uns_fail(err, -ENOTSUP, "%s is no module's of the base model", t->name);
		name += strlen(PREFIX);
		part = uns_adapter_part(name);
		if (part && part > name) {
			UNS_TRY(part_add(m, t, name, part, err));
			continue;
		}
		UNS_TRY_ALLOC(name = uns_adapter_base_name(m->arena, PREFIX, name), err);
		UNS_TRY(replace(m, t, name, err));
	}
	return 0;
}

static int modules_add(struct merge *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p)
	const struct uns_merge_module **wrapped = calloc(m->modules.n + 1, sizeof(struct uns_merge_module *));
	struct uns_merging merging = { .sums = &m->sums, .settings = &m->settings, .times = 1 };
	const char *name;
	size_t at = 0, n_wrapped = 0;
	void *of;

	UNS_TRY_ALLOC(wrapped, err);
	while (uns_map_next(&m->modules, &at, &name, &of))
		if (uns_merge_experts_wrapped(&m->settings, of))
			wrapped[n_wrapped++] = of;
		else
			UNS_TRY(uns_merge_module_add(&merging, of, err));
	if (n_wrapped)
		UNS_TRY(uns_merge_experts_find(&m->sums, m->in->config, &m->experts, err));
	UNS_TRY(uns_merge_experts_add(&merging, &m->experts, wrapped, n_wrapped, err));
	/* The config's fan_in_fan_out is what PEFT found last: it decides for square weights only if the others agree.
	 */
	if (m->settings.fan_in_fan_out ? merging.plain : merging.turned)
		return uns_fail(
			err, -ENOTSUP,
			"adapter_config.json has fan_in_fan_out = %s, and some weights have rows and columns in "
			"the other order",
			m->settings.fan_in_fan_out ? "true" : "false");
	return 0;
}

/* -- tied weights -- */

/* Whether the tensor is one of two that the config may tie to each other. */
static bool may_be_tied(const struct uns_merge_input *in, const struct uns_named_tensor *t)
{
	static const char *const usual[] = { "embed", "wte", "shared", "lm_head" };
	const struct uns_tie_rows rows = uns_tie_rows_of(in->config->model_type);
	size_t i;

	for (i = 0; t->tensor->shape.n == 2 && i < sizeof(usual) / sizeof(*usual); i++)
		if (strstr(t->name, usual[i]))
			return true;
	for (i = 0; i < rows.n; i++)
		if (rows.v[i].first &&
		    (uns_name_ends(t->name, rows.v[i].first) || uns_name_ends(t->name, rows.v[i].second)))
			return true;
	return false;
}

/* A loaded model has one of two tied weights in both places. What PEFT does to the other one differs between its
 * versions. */
static int ties_check(const struct merge *m, struct uns_err *err)
{
	const struct uns_merge_weight *w = m->sums.v, *end = w + m->sums.n;

	for (; m->in->config->ties_embeddings && w < end; w++)
		if ((w->changed || w->replaced) && may_be_tied(m->in, &w->shown))
			return uns_fail(err, -ENOTSUP,
					"the adapter changes %s, and config.json ties the model's embeddings",
					w->shown.name);
	return 0;
}

/* -- all -- */

static int base_check(const struct uns_merge_input *in, struct uns_err *err)
{
	if (in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE || in->base->n)
		return 0;
	if (in->catalog->summary.adapter == UNS_ADAPTER_BESIDE)
		return uns_fail(err, -ENOTSUP, "a whole model was saved beside the adapter: see the view weights");
	if (in->base->why)
		return uns_fail(err, -ENOTSUP, "the base model %s cannot be used: %s", in->base->where, in->base->why);
	return uns_fail(err, -ENOTSUP,
			"adapter_config.json names no base model: mount with -o model=DIR, where DIR holds its "
			"model.safetensors");
}

static const char *formula_of(const struct uns_adapter_settings *settings)
{
	switch (settings->method) {
	case UNS_METHOD_LORA:
		return settings->dora ? "W + scale * B A, each row then times its magnitude / its norm,"
				      : "W + scale * B A";
	case UNS_METHOD_IA3:
		return "W * l";
	default:
		return "W";
	}
}

static int list(struct merge *m, struct uns_err *err)
{
	struct uns_merged *out = m->out;

	UNS_TRY_ALLOC(m->v = calloc(m->sums.n + 1, sizeof(*m->v)), err);
	UNS_TRY(uns_merge_sums_make(&m->sums, &out->n_computed, err));
	for (; out->n < m->sums.n; out->n++) {
		m->v[out->n] = m->sums.v[out->n].shown;
		out->n_replaced += m->sums.v[out->n].replaced;
	}
	return 0;
}

int uns_merged_adapter_make(const struct uns_merge_input *in, struct uns_arena *arena, struct uns_merged *out,
			    struct uns_err *err)
{
	UNS_CLEANUP(merge_fini)
	struct merge m = {
		.in = in,
		.arena = arena,
		.out = out,
		.sums = { .catalog = in->catalog, .arena = arena, .out = in->out },
	};
	UNS_CLEANUP(uns_adapter_list_fini) struct uns_adapter_list all = { 0 };
	const struct uns_one_adapter *adapter;

	UNS_TRY(base_check(in, err));
	if (!uns_span_left(&in->adapter_config))
		return uns_fail(err, -ENOTSUP,
				"adapter_config.json was not found, and lora_alpha is not known without it");
	UNS_TRY(uns_adapter_settings_read(in->adapter_config, &m.settings, err));
	out->formula = formula_of(&m.settings);
	UNS_TRY(uns_adapter_list(in->catalog, &all, err));
	adapter = &all.v[all.chosen];
	UNS_TRY_ALLOC(out->adapter = uns_arena_strn(arena, adapter->name, adapter->len), err);
	UNS_TRY(base_list(&m, err));
	UNS_TRY(adapter_read(&m, adapter, err));
	UNS_TRY(modules_add(&m, err));
	UNS_TRY(ties_check(&m, err));
	UNS_TRY(list(&m, err));
	out->v = UNS_TAKE(m.v);
	return 0;
}
