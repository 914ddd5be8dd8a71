/* The base model's weights are listed; the adapter's tensors are put together by the module that they are of; each
 * module adds to the sums of its weights (files/merge_module.h). Everything else that was trained takes the place of
 * the base model's (modules_to_save, biases). Source: peft 0.21.2, tuners/tuners_utils.py.
 *
 * Of several adapters each is read by itself, with its own adapter_config.json, and adds to the same sums: as
 * tuners/lora/model.py (add_weighted_adapter, "cat") has it, which multiplies lora_A by the adapter's number. */
#include "files/merged_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/number.h"
#include "base/path.h"
#include "base/text.h"
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
	struct uns_merge_sums sums;
	struct uns_named_tensor *v; /* becomes out->v */
	const char *base; /* the base model that the adapters before this one name; NULL = none does */
};

static void merge_fini(struct merge *m)
{
	uns_merge_sums_fini(&m->sums);
	free(m->v);
}

/* One adapter. */
struct adding {
	struct merge *of;
	const struct uns_one_adapter *adapter;
	double times; /* what it adds is multiplied by it */
	struct uns_adapter_settings settings;
	struct uns_map modules; /* name in the base model -> struct uns_merge_module */
	struct uns_merge_experts experts;
};

static void adding_fini(struct adding *a)
{
	uns_adapter_settings_fini(&a->settings);
	uns_map_fini(&a->modules);
	uns_merge_experts_fini(&a->experts);
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

static int base_list(const struct uns_merge_input *in, struct uns_merge_sums *sums, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	const bool is_saved = cat->summary.adapter == UNS_ADAPTER_AND_BASE;
	const struct uns_tensor *t = is_saved ? cat->tensors : in->base->v;
	const struct uns_tensor *end = t + (is_saved ? cat->n_tensors : in->base->n);
	const char *name;

	for (; t < end; t++) {
		name = t->name;
		if (is_saved && (!uns_adapter_is_base(t) || is_tied(in, t)))
			continue;
		if (is_saved)
			UNS_TRY_ALLOC(name = uns_adapter_base_name(sums->arena, PREFIX, from_prefix(name)), err);
		UNS_TRY(uns_merge_sums_put(sums, t, name, err));
	}
	return 0;
}

/* -- the adapter -- */

static int part_add(struct adding *a, const struct uns_tensor *t, const char *name, const char *part,
		    struct uns_err *err)
{
	const enum uns_merge_part is = uns_merge_part_find(a->settings.method, part);
	struct uns_arena *arena = a->of->arena;
	const char *module = uns_arena_strn(arena, name, (size_t)(part - 1 - name));
	struct uns_merge_module *of;

	UNS_TRY_ALLOC(module, err);
	if (is == UNS_N_PARTS)
		return uns_fail(err, -ENOTSUP, "%s is of a kind that unshard does not merge", t->name);
	of = uns_map_get(&a->modules, module);
	if (!of) {
		UNS_TRY_ALLOC(of = UNS_NEW(arena, struct uns_merge_module), err);
		of->name = module;
		UNS_TRY_ALLOC(uns_map_put(&a->modules, module, of, NULL), err);
	}
	if (of->part[is])
		return uns_fail(err, -ENOTSUP, "%s and %s are the same part of one module", of->part[is]->name,
				t->name);
	of->part[is] = t;
	return 0;
}

/* The adapter's own tensor takes the place of the base model's. */
static int replace(struct adding *a, const struct uns_tensor *t, const char *name, struct uns_err *err)
{
	struct merge *m = a->of;
	struct uns_merge_weight *w = uns_merge_sums_find(&m->sums, name);

	if (!w && m->in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE) {
		UNS_TRY(uns_merge_sums_put(&m->sums, t, name, err));
		w = uns_merge_sums_find(&m->sums, name);
	}
	if (!w)
		return uns_fail(err, -ENOTSUP, "the base model has no tensor %s, which the adapter replaces", name);
	if (!uns_shape_equal(&w->shown.tensor->shape, &t->shape))
		return uns_fail(err, -ENOTSUP, "%s has another shape in the adapter than in the base model", name);
	if (a->times != 1)
		return uns_fail(err, -ENOTSUP, "the adapter has a %s of its own, which nothing multiplies", name);
	if (m->out->several && w->replaced)
		return uns_fail(err, -ENOTSUP, "another of the adapters has a %s of its own, too", name);
	w->shown.tensor = t;
	w->replaced = true;
	return 0;
}

static int adapter_read(struct adding *a, struct uns_err *err)
{
	struct merge *m = a->of;
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = NULL;
	const struct uns_tensor *t;
	const char *name, *part;
	size_t n, i;

	UNS_TRY(uns_adapter_tensors(m->in->catalog, a->adapter, m->arena, &v, &n, err));
	for (i = 0; i < n; i++) {
		t = v[i].tensor;
		name = from_prefix(v[i].name);
		if (!uns_str_starts(name, PREFIX))
			return uns_fail(err, -ENOTSUP, "%s is no module's of the base model", t->name);
		name += strlen(PREFIX);
		part = uns_adapter_part(name);
		if (part && part > name) {
			UNS_TRY(part_add(a, t, name, part, err));
			continue;
		}
		UNS_TRY_ALLOC(name = uns_adapter_base_name(m->arena, PREFIX, name), err);
		UNS_TRY(replace(a, t, name, err));
	}
	return 0;
}

static int modules_add(struct adding *a, struct uns_err *err)
{
	struct merge *m = a->of;
	UNS_CLEANUP(uns_free_p)
	const struct uns_merge_module **wrapped = calloc(a->modules.n + 1, sizeof(struct uns_merge_module *));
	struct uns_merging merging = { .sums = &m->sums, .settings = &a->settings, .times = a->times };
	const char *name;
	size_t at = 0, n_wrapped = 0;
	void *of;

	UNS_TRY_ALLOC(wrapped, err);
	while (uns_map_next(&a->modules, &at, &name, &of))
		if (uns_merge_experts_wrapped(&a->settings, of))
			wrapped[n_wrapped++] = of;
		else
			UNS_TRY(uns_merge_module_add(&merging, of, err));
	if (n_wrapped)
		UNS_TRY(uns_merge_experts_find(&m->sums, m->in->config, &a->experts, err));
	UNS_TRY(uns_merge_experts_add(&merging, &a->experts, wrapped, n_wrapped, err));
	/* The config's fan_in_fan_out is what PEFT found last: it decides for square weights only if the others agree.
	 */
	if (a->settings.fan_in_fan_out ? merging.plain : merging.turned)
		return uns_fail(
			err, -ENOTSUP,
			"adapter_config.json has fan_in_fan_out = %s, and some weights have rows and columns in "
			"the other order",
			a->settings.fan_in_fan_out ? "true" : "false");
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

static const char *formula_of(const struct uns_adapter_settings *settings, bool weighted)
{
	if (weighted)
		return "W + the sum of each adapter's number * scale * B A";
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

/* -- one adapter -- */

/* Adapters are made for one base model. */
static int base_compare(struct adding *a, struct uns_err *err)
{
	struct merge *m = a->of;
	const char *base = uns_json_str(a->settings.json, "base_model_name_or_path");

	if (!base || !*base)
		return 0;
	if (m->base && strcmp(m->base, base) != 0)
		return uns_fail(err, -ENOTSUP, "it was made for %s, another of the adapters for %s", base, m->base);
	m->base = uns_arena_str(m->arena, base);
	return m->base ? 0 : uns_oom(err);
}

/* Only what a LoRA adds can be added to what another adapter adds, and be multiplied. */
static int weighting_check(const struct adding *a, struct uns_err *err)
{
	if (!a->of->out->several && a->times == 1)
		return 0;
	if (a->settings.method != UNS_METHOD_LORA)
		return uns_fail(err, -ENOTSUP, "it is no LoRA, and only these are added to each other and multiplied");
	if (a->settings.dora)
		return uns_fail(err, -ENOTSUP,
				"its rows have magnitudes (DoRA), which are those of the base model with this adapter "
				"alone");
	return 0;
}

static int version_add(const struct adding *a, struct uns_err *err)
{
	const char *version = uns_json_str(a->settings.json, "peft_version"), *before = a->of->out->peft;

	if (!version || (before && strstr(before, version)))
		return 0;
	a->of->out->peft = uns_arena_printf(a->of->arena, "%s%s%s", before ? before : "", before ? ", " : "", version);
	return a->of->out->peft ? 0 : uns_oom(err);
}

static int adapter_add(struct adding *a, struct uns_span config, struct uns_err *err)
{
	if (!uns_span_left(&config))
		return uns_fail(err, -ENOTSUP,
				"adapter_config.json was not found, and lora_alpha is not known without it");
	UNS_TRY(uns_adapter_settings_read(config, &a->settings, err));
	UNS_TRY(weighting_check(a, err));
	UNS_TRY(base_compare(a, err));
	UNS_TRY(version_add(a, err));
	if (!a->of->out->formula)
		a->of->out->formula = formula_of(&a->settings, a->of->out->several || a->times != 1);
	UNS_TRY(adapter_read(a, err));
	return modules_add(a, err);
}

static int one_add(struct merge *m, const struct uns_one_adapter *adapter, double times, struct uns_span config,
		   struct uns_err *err)
{
	UNS_CLEANUP(adding_fini) struct adding a = { .of = m, .adapter = adapter, .times = times };
	const int code = adapter_add(&a, config, err);

	return code < 0 && m->out->several ? uns_fail_in(err, "adapter %.*s", (int)adapter->len, adapter->name) : code;
}

/* -- those that the user names -- */

static int no_such_adapter(const struct uns_adapter_list *all, const char *name, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text has = UNS_TEXT_INIT;
	size_t i;

	for (i = 0; i < all->n; i++)
		uns_text_printf(&has, "%s%.*s", i ? ", " : "", (int)all->v[i].len, all->v[i].name);
	if (has.failed)
		return uns_oom(err);
	return uns_fail(err, -ENOTSUP, "the checkpoint has no adapter %s, which -o adapters= names; it has %s", name,
			has.len ? has.p : "one without a name (default)");
}

static int chosen_name(struct merge *m, struct uns_err *err)
{
	const struct uns_adapter_choice *of = m->in->adapters;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	char number[UNS_NUMBER_ROOM];
	size_t i;

	for (i = 0; i < of->n; i++)
		uns_text_printf(&text, "%s%s:%s", i ? "+" : "", of->name[i],
				uns_number_print_exact(number, of->times[i]));
	if (text.failed)
		return uns_oom(err);
	m->out->adapter = uns_arena_strn(m->arena, text.p, text.len);
	return m->out->adapter ? 0 : uns_oom(err);
}

static int chosen_add(struct merge *m, const struct uns_adapter_list *all, struct uns_err *err)
{
	const struct uns_adapter_choice *of = m->in->adapters;
	const struct uns_one_adapter *adapter;
	struct uns_span config;
	size_t i;

	m->out->several = of->n > 1;
	UNS_TRY(chosen_name(m, err));
	for (i = 0; i < of->n; i++) {
		adapter = uns_adapter_named(all, of->name[i]);
		if (!adapter)
			return no_such_adapter(all, of->name[i], err);
		config = m->in->adapter_configs ? m->in->adapter_configs[i] : uns_span_of("", 0);
		if (!uns_span_left(&config) && adapter != &all->v[all->chosen])
			return uns_fail(
				err, -ENOTSUP,
				"adapter %s has no %s/adapter_config.json, neither in the checkpoint nor in its "
				"run nor in a directory of -o model=: lora_alpha is not known without it",
				of->name[i], of->name[i]);
		UNS_TRY(one_add(m, adapter, of->times[i], uns_span_left(&config) ? config : m->in->adapter_config,
				err));
	}
	return 0;
}

/* What one adapter has in the place of a weight, another one was not trained to change. */
static int mixed_check(const struct merge *m, struct uns_err *err)
{
	const struct uns_merge_weight *w = m->sums.v, *end = w + m->sums.n;

	for (; m->out->several && w < end; w++)
		if (w->changed && w->replaced)
			return uns_fail(err, -ENOTSUP,
					"one of the adapters has a %s of its own, and another changes it",
					w->shown.name);
	return 0;
}

int uns_merged_adapter_base(const struct uns_merge_input *in, struct uns_merge_sums *sums, struct uns_err *err)
{
	UNS_TRY(base_check(in, err));
	return base_list(in, sums, err);
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
	const struct uns_one_adapter *trained;

	UNS_TRY(base_check(in, err));
	UNS_TRY(uns_adapter_list(in->catalog, in->other, &all, err));
	UNS_TRY(base_list(in, &m.sums, err));
	if (in->adapters->n) {
		UNS_TRY(chosen_add(&m, &all, err));
	} else {
		trained = &all.v[all.chosen];
		UNS_TRY_ALLOC(out->adapter = uns_arena_strn(arena, trained->name, trained->len), err);
		UNS_TRY(one_add(&m, trained, 1, in->adapter_config, err));
	}
	UNS_TRY(mixed_check(&m, err));
	UNS_TRY(ties_check(&m, err));
	UNS_TRY(list(&m, err));
	out->v = UNS_TAKE(m.v);
	return 0;
}
