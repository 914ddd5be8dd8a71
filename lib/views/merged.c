/* merged, merged-bf16, merged-fp16, merged-fp32: the base model with the adapter merged into it, as PEFT's
 * merge_and_unload makes it: safetensors files with an index where they are large, config, tokenizer.
 *
 * The base model is the checkpoint's own, or, for an adapter alone, the one that -o model= names, or else
 * adapter_config.json.
 * Weights are computed when they are read (model/sum_tensor.h). What cannot be merged exactly is refused as a whole. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/merged_adapter.h"
#include "files/safetensors_file.h"
#include "files/view_dtype.h"
#include "model/cover.h"
#include "model/sum_tensor.h"
#include "views/view.h"
#include "wire/json.h"

static void merged_fini(struct uns_merged *merged)
{
	free(merged->v);
}

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	size_t i;

	(void)parameter;
	if (cat->summary.adapter == UNS_ADAPTER_NONE)
		return uns_adapter_absence(cat, why);
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].of_adapter || uns_adapter_is_base(&cat->tensors[i]) ||
		    (cat->summary.adapter == UNS_ADAPTER_OTHER && uns_other_lora_has(&cat->tensors[i])))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

static const struct uns_config_info *info_of(const struct uns_view_input *in)
{
	return uns_span_left(&in->config) ? &in->config_info : &in->base_model->info;
}

/* A base model whose weights are stored as something else than their values. */
static const char *quantised_by(const struct uns_view_input *in, struct uns_arena *arena)
{
	const struct uns_span *config = uns_view_adapted_config(in);
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const cJSON *quantised;
	const char *method;

	if (!uns_span_left(config) || uns_json_parse(*config, &json, NULL) < 0)
		return NULL;
	quantised = cJSON_GetObjectItemCaseSensitive(json, "quantization_config");
	method = uns_json_str(quantised, "quant_method");
	return cJSON_IsObject(quantised) ? uns_arena_str(arena, method ? method : "quantization_config") : NULL;
}

static int not_merged(const struct uns_view_input *in, const char *cause, struct uns_arena *arena, struct uns_err *err)
{
	const char *method = quantised_by(in, arena);

	if (method)
		cause = uns_arena_printf(
			arena, "%s (by its config.json the base model is quantised, %s: name one that is not)", cause,
			method);
	UNS_TRY_ALLOC(cause, err);
	return UNS_CATALOG_FAIL(in->catalog, err, NOT_MERGED, .scope = UNS_SCOPE_WEIGHTS,
				.arg = { { "cause", uns_str(cause) } });
}

static int merge(const struct uns_view_input *in, uint64_t parameter, struct uns_arena *arena, struct uns_merged *out,
		 struct uns_err *err)
{
	struct uns_adapter_config made = uns_view_adapter_config(in);
	struct uns_merge_input of = { .catalog = in->catalog,
				      .base = in->base_model,
				      .adapter_config = in->adapter_config,
				      .adapters = &in->adapters,
				      .adapter_configs = in->adapter_configs,
				      .tied = in->tied,
				      .n_tied = in->n_tied,
				      .config = info_of(in),
				      .out = (enum uns_dtype)parameter };
	struct uns_other_lora room;
	struct uns_err why = { 0 };
	int code;

	UNS_TRY(uns_view_other_lora(in, arena, &room, &of.other, err));
	made.other = of.other;
	if (!uns_span_left(&of.adapter_config))
		UNS_TRY(uns_adapter_config_text(&made, arena, &of.adapter_config, err));
	code = uns_merged_adapter_make(&of, arena, out, &why);
	if (!uns_code_is_finding(code))
		return code < 0 ? uns_fail_copy(err, &why) : 0;
	return not_merged(in, why.text, arena, err);
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(merged_fini) struct uns_merged merged = { 0 };

	return merge(in, parameter, &arena, &merged, why);
}

/* All tensors, under the names and in the form that the view has. */
static int tensors_make(const struct uns_view_input *in, uint64_t parameter, struct uns_merged *merged,
			struct uns_vtree *out, struct uns_err *err)
{
	UNS_TRY(merge(in, parameter, &out->arena, merged, err));
	if (in->catalog->summary.adapter == UNS_ADAPTER_AND_BASE)
		UNS_TRY(uns_published_apply(&in->config_info, in->base, &merged->v, &merged->n, out, err));
	return uns_expert_forms_apply(in->catalog, info_of(in), in->experts, &merged->v, &merged->n, out, err);
}

/* -- files -- */

static const char *origin_of(const struct uns_view_input *in, const struct uns_merged *merged, struct uns_arena *arena)
{
	return uns_arena_printf(
		arena,
		"the base model of %s with the checkpoint's adapter%s%s%s merged into it: %zu of %zu tensors are computed "
		"as %s in fp64 and rounded once, %zu are the adapter's own%s%s",
		in->base_model->n ? in->base_model->where : "the checkpoint", merged->several ? "s" : "",
		*merged->adapter ? " " : "", merged->adapter, merged->n_computed, merged->n, merged->formula,
		merged->n_replaced, merged->peft ? "; adapter_config.json is of PEFT " : "",
		merged->peft ? merged->peft : "");
}

/* A loader that finds adapter_config.json would load an adapter once more. */
static int add_borrowed(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_companion *c = in->borrowed, *end = c + in->n_borrowed;

	for (; c < end; c++) {
		if (strcmp(uns_path_name(c->name), "adapter_config.json") == 0)
			continue;
		if (strcmp(c->name, "config.json") == 0)
			UNS_TRY(uns_view_dtype_add_config(in->catalog, c, *uns_view_adapted_config(in),
							  (enum uns_dtype)parameter, out, err));
		else
			UNS_TRY(uns_vtree_add_file(out, in->catalog, c->name, c->file, err));
	}
	return 0;
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(merged_fini) struct uns_merged merged = { 0 };
	const char *origin;

	UNS_TRY(tensors_make(in, parameter, &merged, out, err));
	UNS_TRY_ALLOC(origin = origin_of(in, &merged, &out->arena), err);
	UNS_TRY(uns_part_safetensors_set(in->catalog, merged.v, merged.n, uns_config_stem(&in->config_info),
					 in->max_shard_size_bytes, origin, out, err));
	UNS_TRY(add_borrowed(in, parameter, out, err));
	return uns_vtree_note_findings(out, in->notes, in->n_notes, err);
}

static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(merged_fini) struct uns_merged merged = { 0 };
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree own = { 0 };

	if (in->experts != UNS_EXPERTS_PUBLISHED) /* which may be refused */
		UNS_TRY(tensors_make(in, UNS_DTYPE_NONE, &merged, &own, err));
	return uns_vtree_note_findings(out, in->notes, in->n_notes, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	(void)parameter;
	(void)is_file;
	return uns_span_left(uns_view_adapted_config(in)) ? uns_config_loader(&in->config_info) : UNS_LINE_OF_FILES;
}

static const char *const listed[] = { "", NULL };

extern const struct uns_view uns_view_merged;
const struct uns_view uns_view_merged = {
	.name = "merged",
	.listed = listed,
	.parse = uns_view_dtype_parse,
	.needs_companions = true,
	.opens_files = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.notes = notes,
	.usage = usage,
};
