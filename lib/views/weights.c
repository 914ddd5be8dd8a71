/* weights, weights-bf16, weights-fp16, weights-fp32, weights-fp8: an inference directory. Safetensors files with an
 * index where they are large, config, tokenizer, and nothing a trainer would resume from.
 *
 * If the weights lie in files that a loader takes as they are, the view "weights" shows those files. Otherwise files
 * are assembled. This file decides of what:
 *
 *   which tensors     all of the model, but those that save_pretrained leaves out because they are tied or computed; of
 * a checkpoint with an adapter the adapter's alone, or the model's alone (choose_tensors) whose elements    those of
 * the weight, or, for weights-fp32, of the optimizer's fp32 copy, which is more exact in which type     the weight's
 * own, or the view's under which name  without wrappers (names/strip.h) and PEFT's prefixes; then, where the model's
 * type is known, as save_pretrained publishes it (publish)
 *
 * files/ makes the files of that list. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/text.h"
#include "model/cover.h"
#include "files/adapter.h"
#include "files/adapter_files.h"
#include "files/fp8.h"
#include "names/autoep_names.h"
#include "names/base_shapes.h"
#include "names/config.h"
#include "files/lightning_file.h"
#include "files/masters.h"
#include "megatron/names.h"
#include "files/full_files.h"
#include "names/published_names.h"
#include "files/safetensors_file.h"
#include "names/template.h"
#include "names/tie_rows.h"
#include "files/view_dtype.h"
#include "views/view.h"

/* -- which tensors -- */

/* fp8 is no conversion of each tensor: matrices are quantised (files/fp8.h), and the others stay as they are. */
enum { FP8 = UNS_F8_E4M3 };

static bool parse(const char *parameter, uint64_t *out)
{
	*out = FP8;
	return strcmp(parameter, "fp8") == 0 || uns_view_dtype_parse(parameter, out);
}

static enum uns_dtype out_type(const struct uns_tensor *t, uint64_t parameter)
{
	if (parameter == UNS_DTYPE_NONE || parameter == FP8 || !uns_dtype_info(t->dtype)->is_float)
		return t->dtype;
	return (enum uns_dtype)parameter;
}

/* -- supports -- */

static int supports(const struct uns_catalog *cat, uint64_t parameter, struct uns_err *why)
{
	int code = uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why);
	size_t i, n_shown = 0;

	if (code == 0 && parameter == UNS_F32)
		code = uns_masters_check(cat, why);
	for (i = 0; i < cat->n_tensors && code == 0; i++) {
		if (!uns_role_is_model(cat->tensors[i].role))
			continue;
		code = uns_cover_check(cat, &cat->tensors[i], why);
		n_shown++;
	}
	/* Weights that are not understood are a problem: -ENOTSUP would mean that the checkpoint has no
	 * weights, and hide it. */
	if (code < 0)
		return code == -ENOTSUP ? -EBADMSG : code;
	return n_shown ? 0 : UNS_CATALOG_FAIL(cat, why, NO_WEIGHTS_UNDER_ROOT, .scope = UNS_SCOPE_WEIGHTS);
}

static bool names_optimizer(uint64_t parameter)
{
	return parameter == UNS_F32; /* the most exact that is held: fp32 copies */
}

/* -- a directory that is an inference directory already -- */

/* The companion that this file is, if it has one of the names that loaders look for. */
static const struct uns_companion *published_companion(const struct uns_catalog *cat, uint32_t file)
{
	static const char *const globs[] = { "model.safetensors",
					     "model-*-of-*.safetensors",
					     "pytorch_model.bin",
					     "pytorch_model-*-of-*.bin",
					     "adapter_model.safetensors",
					     "adapter_model.bin",
					     NULL };
	const struct uns_companion *c = cat->companions, *end = c + cat->n_companions;
	size_t i;

	while (c < end && c->file != file)
		c++;
	for (i = 0; c < end && !c->shard && globs[i]; i++)
		if (uns_str_glob(globs[i], c->name))
			return c;
	return NULL;
}

/* Do the weights lie in files that loaders look for, all of them? Marks these files. */
static bool mark_published_files(const struct uns_catalog *cat, bool *used)
{
	size_t i, k;

	for (i = 0; i < cat->n_tensors && cat->summary.is_published; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		for (k = 0; uns_role_is_model(t->role) && k < t->n_pieces; k++) {
			uint32_t file = cat->pieces[t->first_piece + k].file;

			if (!used[file] && !published_companion(cat, file))
				return false;
			used[file] = true;
		}
	}
	return cat->summary.is_published;
}

/* Are the files whole, and their own index wrong? Then files are assembled, with an index that fits. */
static bool form_is_damaged(const struct uns_catalog *cat)
{
	size_t i = 0;

	while (i < cat->n_findings && cat->findings[i].scope != UNS_SCOPE_SHARDED)
		i++;
	return i < cat->n_findings;
}

/* Are experts wanted in another form than the files have? */
static bool experts_change(const struct uns_view_input *in)
{
	const struct uns_tensor *t = in->catalog->tensors, *end = t + in->catalog->n_tensors;

	while (t < end &&
	       !(uns_role_is_model(t->role) && uns_expert_forms_changes(&in->config_info, in->experts, t->name)))
		t++;
	return t < end;
}

/* 1 = the directory's own files are shown, with the names and types that they have; 0 = files have to be assembled. */
static int pass_through(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = in->catalog;
	UNS_CLEANUP(uns_free_p) bool *used = calloc(cat->n_files + 1, sizeof(*used));
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(cat->n_tensors + 1, sizeof(*v));
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	const struct uns_companion *c = NULL, *index;
	size_t n = 0;
	uint32_t i;

	UNS_TRY_ALLOC(used && v, err);
	if (cat->n_averaged || cat->summary.adapter == UNS_ADAPTER_AND_BASE || form_is_damaged(cat) ||
	    experts_change(in) || !mark_published_files(cat, used))
		return 0;
	for (i = 0; i < cat->n_files; i++) {
		if (!used[i])
			continue;
		c = published_companion(cat, i);
		UNS_TRY(uns_vtree_add_file(out, cat, c->name, i, err));
	}
	if (!c)
		return 0;
	index = uns_catalog_companion(cat, uns_str_ends(c->name, ".bin") ? "pytorch_model.bin.index.json"
									 : "model.safetensors.index.json");
	if (index && strstr(c->name, "-of-"))
		UNS_TRY(uns_vtree_add_file(out, cat, index->name, index->file, err));
	for (; t < end; t++)
		if (uns_role_is_model(t->role))
			v[n++] = (struct uns_named_tensor){ t->name, t, t->dtype, NULL };
	UNS_TRY(uns_vtree_set_tensors(out, v, n, err));
	return 1;
}

/* -- assembled files -- */

struct assembly {
	const struct uns_view_input *in;
	uint64_t parameter; /* the type of its tensors, UNS_DTYPE_NONE = as stored */
	const struct uns_sentence_module *module; /* the one whose tensors they are; NULL = those of all */
	enum uns_adapter adapter;
	const char *wrapper; /* what the names begin with of the model that an adapter is put on */
	const char *strip; /* what else is left out in front of names; "" = nothing */
	struct uns_map masters, tied; /* tied: by name */
	struct uns_tie_rows family; /* which tensors its models compute */
	struct uns_named_tensor *v; /* n, which are shown */
	size_t n, n_masters, n_rounded, n_widened; /* how many are made from masters, by a view or as stored; widened */
	struct uns_text widened; /* the names of these: they have no master */
	struct uns_fp8 fp8;
};

static struct assembly assembly_of(const struct uns_view_input *in, const struct uns_sentence_module *module,
				   uint64_t parameter)
{
	return (struct assembly){ .in = in,
				  .module = module,
				  .parameter = parameter,
				  .family = uns_tie_rows_of(in->config_info.model_type),
				  .adapter = in->catalog->summary.adapter,
				  .wrapper = uns_adapter_wrapper(in->catalog) };
}

static void assembly_fini(struct assembly *a)
{
	uns_map_fini(&a->masters);
	uns_map_fini(&a->tied);
	uns_text_fini(&a->widened);
	uns_fp8_fini(&a->fp8);
	free(a->v);
}

static bool leaves_out(const struct assembly *a, const struct uns_tensor *t)
{
	if (!uns_role_is_model(t->role) || uns_map_get(&a->tied, t->name) == t ||
	    uns_tie_rows_computed(a->family, t->name))
		return true;
	if (a->module && !uns_sentence_module_has(a->module, t))
		return true;
	return (a->adapter == UNS_ADAPTER_ALONE && !t->of_adapter) ||
	       (a->adapter == UNS_ADAPTER_AND_BASE && !uns_adapter_is_base(t));
}

/* NULL = out of memory. */
static const char *name_of(const struct assembly *a, const struct uns_tensor *t, struct uns_arena *arena)
{
	const char *name = uns_strip_name(a->strip, t->name);

	switch (a->adapter) {
	case UNS_ADAPTER_ALONE:
		return uns_adapter_name(arena, name);
	case UNS_ADAPTER_AND_BASE:
		return uns_adapter_base_name(arena, a->wrapper, name);
	default:
		return name;
	}
}

static int choose_strip(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = a->in->catalog;
	const char *given = a->in->strip ? a->in->strip : a->in->prefix;
	UNS_CLEANUP(uns_free_p) const char **names = calloc(cat->n_tensors + 1, sizeof(*names));
	size_t i, n = 0;

	UNS_TRY_ALLOC(names, err);
	for (i = 0; i < cat->n_tensors; i++)
		if (!leaves_out(a, &cat->tensors[i]))
			names[n++] = cat->tensors[i].name;
	return uns_strip_choose(a->module ? a->module->prefix : given, names, n, out, &a->strip, err);
}

static int choose_tensors(struct assembly *a, struct uns_arena *arena, struct uns_err *err)
{
	const struct uns_catalog *cat = a->in->catalog;
	const struct uns_tensor *t, *source;
	enum uns_dtype type;
	const char *name;
	size_t i;

	UNS_TRY_ALLOC(a->v = calloc(cat->n_tensors + 1, sizeof(*a->v)), err);
	for (i = 0; i < cat->n_tensors; i++) {
		t = &cat->tensors[i];
		if (leaves_out(a, t))
			continue;
		source = uns_masters_or(&a->masters, t);
		UNS_TRY_ALLOC(name = name_of(a, t, arena), err);
		a->n_masters += source != t;
		/* The checkpoint holds the optimizer's copy of this weight only (ZeRO stage 3). */
		a->n_rounded += source == t && t->n_pieces == 0 && t->alias_of != UNS_NONE &&
				cat->tensors[t->alias_of].role == UNS_ROLE_MASTER;
		type = out_type(t, a->parameter);
		if (uns_dtype_size(source->dtype) < uns_dtype_size(type))
			uns_text_printf(&a->widened, "%s%s", a->n_widened++ ? ", " : "", name);
		a->v[a->n++] = (struct uns_named_tensor){ name, source, type, NULL };
	}
	return a->widened.failed ? uns_oom(err) : 0;
}

static const char *origin_of(const struct assembly *a, struct uns_arena *arena)
{
	const struct uns_catalog *cat = a->in->catalog;
	const char *torch;

	if (cat->averaged)
		return uns_arena_printf(arena,
					"%s, added in fp64 in this order and rounded once; what is not of a floating "
					"dtype is the last one's",
					cat->averaged);
	if (a->parameter == FP8)
		return uns_arena_printf(
			arena,
			"assembled from the checkpoint's tensors; %zu matrices are e4m3 with a scale for "
			"each block of 128 x 128: element * (448 * (1 / the block's largest magnitude)) in "
			"fp32, and weight_scale_inv is 1 / that factor",
			a->fp8.n_scaled);
	if (a->parameter == UNS_DTYPE_NONE && a->n_rounded)
		return uns_arena_printf(
			arena,
			"assembled from the checkpoint's tensors; %zu of them were saved as the optimizer's "
			"fp32 copies only and are converted to the model's dtype",
			a->n_rounded);
	if (a->parameter == UNS_DTYPE_NONE)
		return "assembled from the checkpoint's tensors";
	torch = uns_dtype_info((enum uns_dtype)a->parameter)->torch;
	if (!a->n_masters)
		return uns_arena_printf(arena,
					"assembled from the checkpoint's tensors, floating dtypes converted "
					"to %s",
					torch);
	return uns_arena_printf(
		arena,
		"assembled from the checkpoint's tensors, floating dtypes converted to %s; %zu of them are "
		"made from the optimizer's fp32 copies%s%s",
		torch, a->n_masters, a->n_widened ? "; widened, because the optimizer has no fp32 copy: " : "",
		a->n_widened ? a->widened.p : "");
}

static int publish_megatron(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_catalog *cat = a->in->catalog;
	struct uns_err why = { 0 };
	int code = uns_megatron_apply(cat, &a->in->config_info, a->in->config, &a->v, &a->n, out, &why);
	const char *cause;

	if (!uns_code_is_finding(code))
		return code < 0 ? uns_fail_copy(err, &why) : 0;
	cause = uns_arena_printf(&out->arena, "%s (-o names=memory shows Megatron's own names)", why.text);
	return UNS_FAIL_WITH(err, CONFIG_UNLIKE_WEIGHTS, .scope = UNS_SCOPE_WEIGHTS, .checkpoint = cat->path,
			     .arg = { { "cause", uns_str(cause ? cause : why.text) } });
}

/* Gives the tensors the names, and the shapes, that Hugging Face publishes. A directory of weights that loaders take
 * has these already. */
static int publish(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_view_input *in = a->in;
	const struct uns_catalog *cat = in->catalog;
	UNS_CLEANUP(uns_free_p) bool *used = calloc(cat->n_files + 1, sizeof(*used));

	UNS_TRY_ALLOC(used, err);
	if (a->adapter == UNS_ADAPTER_ALONE || cat->summary.adapter == UNS_ADAPTER_OTHER ||
	    mark_published_files(cat, used) || (a->module && *a->module->path) ||
	    uns_pipeline_of_model(&in->pipeline, 0)) /* whose files have these names */
		return 0;
	if (in->keep_names) {
		if (!(cat->summary.is_megatron ? uns_megatron_knows : uns_published_knows)(in->config_info.model_type))
			return 0;
		return uns_vtree_note(out, err, "the tensors have the saved names, because of -o names=memory");
	}
	if (cat->summary.is_megatron) {
		UNS_TRY(publish_megatron(a, out, err));
	} else {
		if (cat->summary.is_autoep)
			UNS_TRY(uns_autoep_apply(&in->config_info, &a->v, &a->n, out, err));
		UNS_TRY(uns_published_apply(&in->config_info, in->base, &a->v, &a->n, out, err));
	}
	if (in->experts != UNS_EXPERTS_PUBLISHED) /* then the form that is asked for decides, not the base model */
		return 0;
	return uns_base_shapes_apply(cat, &in->config_info, in->base, a->v, a->n, out, err);
}

/* Gives the experts the form that is wanted, in a model of transformers. */
static int experts_shape(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_view_input *in = a->in;

	if (a->adapter == UNS_ADAPTER_ALONE)
		return uns_expert_forms_adapter(in->catalog, in->experts, err);
	if ((a->module && *a->module->path) || uns_pipeline_of_model(&in->pipeline, 0))
		return 0;
	return uns_expert_forms_apply(in->catalog, &in->config_info, in->experts, &a->v, &a->n, out, err);
}

/* Fills v: which tensors, under which names. */
static int name_tensors(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_view_input *in = a->in;
	size_t i;

	for (i = 0; i < in->n_tied; i++)
		UNS_TRY_ALLOC(uns_map_put(&a->tied, in->tied[i]->name, (void *)in->tied[i], NULL), err);
	if (a->parameter == UNS_F32) /* the most exact that is held */
		UNS_TRY(uns_masters_find(in->catalog, &a->masters, err));
	UNS_TRY(choose_strip(a, out, err));
	UNS_TRY(choose_tensors(a, &out->arena, err));
	UNS_TRY(publish(a, out, err));
	return experts_shape(a, out, err);
}

/* What loaders of the model look for, without ".safetensors". NULL = out of memory. */
static const char *stem_of(const struct assembly *a, struct uns_arena *arena)
{
	const struct uns_component *component = uns_pipeline_of_model(&a->in->pipeline, 0);

	if (a->adapter == UNS_ADAPTER_ALONE)
		return "adapter_model";
	if (component)
		return component->stem;
	if (a->module)
		return uns_path_join(arena, a->module->path, "model");
	return uns_config_stem(&a->in->config_info);
}

static int assemble(struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_view_input *in = a->in;
	/* What PEFT and sentence-transformers load by themselves is one file. */
	const bool is_one = a->adapter == UNS_ADAPTER_ALONE || (a->module && !a->module->is_pretrained);
	const char *origin, *stem;

	UNS_TRY(name_tensors(a, out, err));
	if (a->parameter == FP8)
		UNS_TRY(uns_fp8_apply(in->catalog, in->tied, in->n_tied, &a->v, &a->n, &out->arena, &a->fp8, err));
	UNS_TRY_ALLOC(origin = origin_of(a, &out->arena), err);
	UNS_TRY_ALLOC(stem = stem_of(a, &out->arena), err);
	return uns_part_safetensors_set(in->catalog, a->v, a->n, stem, is_one ? UINT64_MAX : in->max_shard_size_bytes,
					origin, out, err);
}

/* The modules of sentence-transformers that have a directory of their own. */
static int assemble_modules(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
			    struct uns_err *err)
{
	const struct uns_sentence_module *m = in->modules.v, *end = m + in->modules.n;

	for (; m < end; m++) {
		UNS_CLEANUP(assembly_fini) struct assembly a = assembly_of(in, m, parameter);

		if (in->modules.is_state && *m->path && m->has_tensors)
			UNS_TRY(assemble(&a, out, err));
	}
	return 0;
}

/* -- files beside them -- */

/* config.json names the type of the view's tensors. */
static int add_borrowed(const struct assembly *a, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_view_input *in = a->in;
	const struct uns_companion *c = in->borrowed, *end = c + in->n_borrowed;

	for (; c < end; c++) {
		if (c->of_base)
			continue;
		if (in->catalog->summary.adapter != UNS_ADAPTER_ALONE &&
		    strcmp(uns_path_name(c->name), "adapter_config.json") == 0)
			continue; /* from_pretrained would load the adapter, into another model */
		if (strcmp(c->name, "config.json") == 0 && a->parameter == FP8)
			UNS_TRY(uns_fp8_add_config(&a->fp8, in->config, out, err));
		else if (strcmp(c->name, "config.json") == 0)
			UNS_TRY(uns_view_dtype_add_config(in->catalog, c, in->config, (enum uns_dtype)a->parameter, out,
							  err));
		else
			UNS_TRY(uns_vtree_add_companion(out, in->catalog, c, err));
	}
	return 0;
}

static int add_adapter_config(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_adapter_config config = uns_view_adapter_config(in);

	return in->catalog->summary.adapter == UNS_ADAPTER_ALONE ? uns_adapter_config_add(&config, out, err) : 0;
}

static int note_config(const struct uns_view_input *in, bool passed, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_config_info *info = &in->config_info;
	struct uns_err why = { 0 };

	if (!uns_span_left(&in->config))
		return 0;
	if (uns_config_check(info, in->catalog, &why) < 0)
		UNS_TRY(uns_vtree_note(out, err, "config.json does not fit these weights: %s", why.text));
	if (!info->renamed_on_save || passed || uns_published_knows(info->model_type))
		return 0;
	return uns_vtree_note(out, err,
			      "transformers 5 publishes models of type %s under other tensor names than it "
			      "holds in memory. The weights here have the saved names, which from_pretrained "
			      "reads; a program that expects the published names may fail on them",
			      info->model_type);
}

static int notes(const struct uns_view_input *in, bool passed, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_tie_rows family = uns_tie_rows_of(in->config_info.model_type);
	const struct uns_tensor *t = in->catalog->tensors, *end = t + in->catalog->n_tensors;

	UNS_TRY(uns_vtree_note_findings(out, in->notes, in->n_notes, err));
	if (passed && in->n_tied)
		UNS_TRY(uns_vtree_note(out, err,
				       "the directory's own weights files are "
				       "shown unchanged, tied tensors included"));
	for (; !passed && t < end; t++)
		if (uns_role_is_model(t->role) && uns_tie_rows_computed(family, t->name))
			UNS_TRY(uns_vtree_note(
				out, err, "%s is left out, as save_pretrained leaves it out: the model computes it",
				t->name));
	return note_config(in, passed, out, err);
}

/* The same weights as one .ckpt. */
static int add_lightning(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out,
			 struct uns_err *err)
{
	const struct uns_lightning_input file = { .catalog = in->catalog,
						  .out = (enum uns_dtype)parameter,
						  .global_step = UNS_UNKNOWN };
	struct uns_err why = { 0 };
	int code = uns_lightning_check(in->catalog, false, &why);

	if (code == 0)
		return uns_lightning_add(&file, out, err);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	return uns_vtree_note(out, err, "the view has no .ckpt file: %s", why.text);
}

static int tree(const struct uns_view_input *in, uint64_t parameter, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_sentence_module *root = uns_sentence_root(&in->modules);
	UNS_CLEANUP(assembly_fini) struct assembly a = assembly_of(in, root, parameter);
	int passed = 0;

	if (parameter == UNS_DTYPE_NONE)
		UNS_TRY(passed = pass_through(in, out, err));
	UNS_TRY(uns_full_add_other_models(in->catalog, &in->pipeline, (enum uns_dtype)parameter,
					  in->max_shard_size_bytes, out, err));
	if (!passed)
		UNS_TRY(assemble_modules(in, parameter, out, err));
	if (!passed && (root || !in->modules.is_state))
		UNS_TRY(assemble(&a, out, err));
	if (in->catalog->summary.is_one_file && parameter != FP8)
		UNS_TRY(add_lightning(in, parameter, out, err));
	UNS_TRY(add_borrowed(&a, out, err));
	UNS_TRY(add_adapter_config(in, out, err));
	return notes(in, passed, out, err);
}

static int quantise(const struct uns_view_input *in, struct uns_err *why)
{
	const struct uns_catalog *cat = in->catalog;
	UNS_CLEANUP(assembly_fini) struct assembly a = assembly_of(in, NULL, FP8);
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree own = { 0 };
	bool other_model = false;
	size_t i;

	if (cat->summary.adapter == UNS_ADAPTER_ALONE)
		return uns_fail(why, -ENOTSUP, "its weights are an adapter's");
	for (i = 0; i < cat->n_companions; i++)
		other_model |= cat->companions[i].of_model;
	if (other_model || in->modules.n || in->pipeline.n || in->config_info.is_diffusers)
		return uns_fail(why, -ENOTSUP, "its weights are not those of one model of transformers");
	UNS_TRY(uns_fp8_check(in->config, why));
	UNS_TRY(name_tensors(&a, &own, why));
	for (i = 0; i < a.n && in->experts == UNS_EXPERTS_FUSED; i++)
		if (uns_expert_forms_changes(&in->config_info, UNS_EXPERTS_SPLIT, a.v[i].name))
			return uns_fail(why, -ENOTSUP,
					"%s has all experts of a layer (-o experts=fused), of which "
					"the scales have no published form",
					a.v[i].name);
	return uns_fp8_apply(cat, in->tied, in->n_tied, &a.v, &a.n, &own.arena, &a.fp8, why);
}

static int supports_input(const struct uns_view_input *in, uint64_t parameter, struct uns_err *err)
{
	struct uns_err why = { 0 };
	const int code = parameter == FP8 ? quantise(in, &why) : 0;

	if (code != -ENOTSUP)
		return code < 0 ? uns_fail_copy(err, &why) : 0;
	return UNS_CATALOG_FAIL(in->catalog, err, NOT_QUANTISED, .scope = UNS_SCOPE_WEIGHTS,
				.arg = { { "cause", uns_str(why.text) } });
}

/* Where config and tokenizer come from, or that there is none; which names the tensors have. */
static int notes_before(const struct uns_view_input *in, struct uns_vtree *out, struct uns_err *err)
{
	const struct uns_sentence_module *root = uns_sentence_root(&in->modules);
	UNS_CLEANUP(assembly_fini) struct assembly a = assembly_of(in, root, UNS_DTYPE_NONE);
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree own = { 0 };
	int passed;

	if (in->catalog->summary.is_pretrained)
		UNS_TRY(uns_vtree_note_findings(out, in->notes, in->n_notes, err));
	UNS_TRY(add_adapter_config(in, out, err));
	UNS_TRY(passed = pass_through(in, &own, err));
	return passed ? 0 : name_tensors(&a, out, err);
}

/* Does from_pretrained take the tensors as the view has them? Megatron's and AutoEP's if their names are known. */
static bool is_for_pretrained(const struct uns_view_input *in)
{
	const struct uns_summary *summary = &in->catalog->summary;
	const char *type = in->config_info.model_type;

	if ((!summary->is_megatron && !summary->is_autoep) || summary->adapter == UNS_ADAPTER_OTHER)
		return summary->is_pretrained;
	return !in->keep_names && (summary->is_megatron ? uns_megatron_knows(type) : uns_autoep_knows(type));
}

static const char *tensors_usage(const struct uns_view_input *in, uint64_t parameter)
{
	const struct uns_tensor *t = in->catalog->tensors, *end = t + in->catalog->n_tensors;
	const bool is_pretrained = in->catalog->summary.is_pretrained;
	uint64_t bytes = 0;

	for (; t < end; t++)
		if (uns_role_is_model(t->role))
			bytes += uns_shape_elems(&t->shape) * uns_dtype_size(out_type(t, parameter));
	/* There is one file for sure only if all tensors fit into one, and no index is there that is passed through. */
	if (bytes > in->max_shard_size_bytes || uns_catalog_companion(in->catalog, "model.safetensors.index.json") ||
	    uns_catalog_companion(in->catalog, "pytorch_model.bin.index.json"))
		return is_pretrained ? UNS_LINE_OF_FILES "  # from_pretrained needs a config.json (-o model=DIR)"
				     : UNS_LINE_OF_FILES;
	return is_pretrained ? "safetensors.torch.load_file(\"%s/model.safetensors\")  # from_pretrained needs a "
			       "config.json (-o model=DIR)"
			     : "safetensors.torch.load_file(\"%s/model.safetensors\")";
}

/* What has no config.json of its own family's trainer is loaded as tensors. */
static const char *usage(const struct uns_view_input *in, uint64_t parameter, bool is_file)
{
	const struct uns_catalog *cat = in->catalog;

	if (is_file && cat->summary.resumed_by & UNS_BY_FABRIC)
		return UNS_LINE_OF_FABRIC "  # a state of models, without optimizers";
	if (is_file)
		return "MyLightningModule.load_from_checkpoint(\"%s\")";
	if (cat->summary.adapter == UNS_ADAPTER_ALONE)
		return "PeftModel.from_pretrained(base_model, \"%s\")";
	if (in->modules.n)
		return "SentenceTransformer(\"%s\")";
	if (in->pipeline.n && !in->pipeline.is_component)
		return "diffusers.DiffusionPipeline.from_pretrained(\"%s\")";
	if (in->pipeline.n)
		return "diffusers.AutoModel.from_pretrained(\"%s\")";
	if (!in->config_info.is_diffusers && (!uns_span_left(&in->config) || !is_for_pretrained(in)))
		return tensors_usage(in, parameter);
	return uns_config_loader(&in->config_info);
}

static const char *const listed[] = { "", "bf16", "fp16", "fp32", NULL };
static const char *const not_listed[] = { "fp8", NULL };

extern const struct uns_view uns_view_weights;
const struct uns_view uns_view_weights = {
	.name = "weights",
	.listed = listed,
	.not_listed = not_listed,
	.parse = parse,
	.names_optimizer = names_optimizer,
	.needs_companions = true,
	.opens_files = true,
	.supports = supports,
	.supports_input = supports_input,
	.tree = tree,
	.notes = notes_before,
	.form = UNS_FORM_BOTH,
	.usage = usage,
};
