/* adapter: the adapter that PEFT trained, as its save_pretrained writes it: adapter_model.safetensors with
 * adapter_config.json and tokenizer. Of every checkpoint that holds one, with the model that it adapts or without. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "files/adapter.h"
#include "files/adapter_files.h"
#include "files/safetensors_file.h"
#include "files/split_adapter.h"
#include "model/cover.h"
#include "views/view.h"

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	size_t i;

	(void)parameter;
	if (cat->summary.adapter == UNS_ADAPTER_NONE)
		return uns_adapter_absence(cat, why);
	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].of_adapter ||
		    (cat->summary.adapter == UNS_ADAPTER_OTHER && uns_other_lora_has(&cat->tensors[i])))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_other_lora *other;
	struct uns_other_lora room;

	(void)parameter;
	return uns_view_other_lora(in, &arena, &room, &other, why);
}

/* They are the adapted model's, and what loads that finds them beside it. */
static bool is_of_base(const char *name)
{
	return strcmp(name, "config.json") == 0 || strcmp(name, "generation_config.json") == 0;
}

/* PEFT saved each adapter with its own config in a directory of its name. */
static bool are_apart(const struct uns_view_input *in)
{
	return in->adapters.n > 1 && !uns_span_left(&in->adapter_config) && in->adapter_configs &&
	       uns_span_left(&in->adapter_configs[0]);
}

/* -- one LoRA for each expert (-o experts=split) -- */

static void split_fini(struct uns_split_adapter *split)
{
	free(split->v);
}

static struct uns_merge_input split_input(const struct uns_view_input *in)
{
	return (struct uns_merge_input){ .catalog = in->catalog,
					 .base = in->base_model,
					 .adapter_config = in->adapter_config,
					 .adapters = &in->adapters,
					 .tied = in->tied,
					 .n_tied = in->n_tied,
					 .config = uns_span_left(&in->config) ? &in->config_info
									      : &in->base_model->info };
}

/* 1 = the adapter is split, in *split; 0 = it is shown as it was saved. */
static int split_make(const struct uns_view_input *in, const struct uns_other_lora *other, struct uns_vtree *out,
		      struct uns_split_adapter *split, struct uns_err *err)
{
	struct uns_merge_input of = split_input(in);
	bool changes;

	of.other = other;
	UNS_TRY(uns_split_adapter_needed(&of, in->experts, &changes, err));
	if (!changes)
		return 0;
	UNS_TRY(uns_split_adapter_make(&of, &out->arena, split, err));
	UNS_TRY(uns_vtree_note(out, err, "each expert has a LoRA of its own, because of -o experts=split"));
	return 1;
}

static int split_add(const struct uns_view_input *in, const struct uns_split_adapter *split, struct uns_vtree *out,
		     struct uns_err *err)
{
	static const char origin[] = "each expert's part of the LoRA that PEFT stacked over the experts of a layer";
	const struct uns_companion *c = in->borrowed, *end = c + in->n_borrowed;

	UNS_TRY(uns_part_safetensors_set(in->catalog, split->v, split->n, "adapter_model", UINT64_MAX, origin, out,
					 err));
	for (; c < end; c++)
		if (!c->of_base && !is_of_base(c->name) && strcmp(c->name, "adapter_config.json") != 0)
			UNS_TRY(uns_vtree_add_file(out, in->catalog, c->name, c->file, err));
	return uns_vtree_add_text(
		out, "adapter_config.json", split->config, strlen(split->config),
		"the checkpoint's, with the modules of single experts in the place of target_parameters", err);
}

/* -- files -- */

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_map no_masters = UNS_MAP_INIT;
	struct uns_adapter_files files = { .catalog = in->catalog,
					   .masters = &no_masters,
					   .apart = are_apart(in),
					   .origin = "assembled from the checkpoint's tensors" };
	struct uns_adapter_config config = uns_view_adapter_config(in);
	UNS_CLEANUP(split_fini) struct uns_split_adapter split = { 0 };
	struct uns_other_lora room;
	int is_split;
	size_t i;

	(void)parameter;
	UNS_TRY(uns_view_other_lora(in, &out->arena, &room, &files.other, err));
	UNS_TRY(is_split = split_make(in, files.other, out, &split, err));
	if (is_split)
		return split_add(in, &split, out, err);
	config.other = files.other;
	if (files.other)
		files.origin = "the checkpoint's tensors under PEFT's names, rows in the order of transformers";
	UNS_TRY(uns_adapter_files_add(&files, out, err));
	for (i = 0; i < in->n_borrowed; i++)
		if (!in->borrowed[i].of_base && !is_of_base(in->borrowed[i].name))
			UNS_TRY(uns_vtree_add_file(out, in->catalog, in->borrowed[i].name, in->borrowed[i].file, err));
	if (are_apart(in))
		return 0;
	return uns_adapter_config_add(&config, out, err);
}

/* Where adapter_config.json is from, or that there is none. */
static int notes(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_adapter_config config = uns_view_adapter_config(in);
	UNS_CLEANUP(split_fini) struct uns_split_adapter split = { 0 };
	struct uns_other_lora room;
	int is_split;

	UNS_TRY(uns_view_other_lora(in, &out->arena, &room, &config.other, err));
	UNS_TRY(is_split = split_make(in, config.other, out, &split, err));
	if (is_split)
		return 0;
	return uns_adapter_config_add(&config, out, err);
}

static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	(void)in;
	(void)parameter;
	(void)is_file;
	return "PeftModel.from_pretrained(base_model, \"%s\")";
}

extern const struct uns_view uns_view_adapter;
const struct uns_view uns_view_adapter = {
	.name = "adapter",
	UNS_VIEW_IS_BARE,
	.needs_companions = true,
	.opens_files = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.notes = notes,
	.usage = usage,
};
