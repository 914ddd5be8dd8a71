/* Which tensors: what published models have (DeepSeek-V3, Qwen3-FP8): the linear projections of a text model's layers.
 * Embeddings, the head, norms, routers and vision models stay. What is not known to be a linear projection stays too.
 */
#include "files/fp8.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "model/scaled_tensor.h"
#include "names/template.h"
#include "wire/json_text.h"

static const char QUANTIZATION[] = "quantization_config";

int uns_fp8_check(struct uns_span config, struct uns_err *why)
{
	struct uns_span value;

	if (!uns_span_left(&config))
		return uns_fail(why, -ENOTSUP, "it needs a config.json, which lists what is quantised (-o model=DIR)");
	if (uns_json_text_get(config, QUANTIZATION, &value))
		return uns_fail(why, -ENOTSUP, "the model of config.json is quantised already");
	return 0;
}

void uns_fp8_fini(struct uns_fp8 *fp8)
{
	uns_text_fini(&fp8->kept);
}

/* "model.layers.3.self_attn.q_proj.weight" is in a layer of the text model. */
static bool is_in_layer(const char *name)
{
	static const char *const before[] = {
		"", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.", NULL
	};
	const char *layers = strstr(name, "layers.");
	size_t i;

	for (i = 0; layers && before[i]; i++)
		if (strlen(before[i]) == (size_t)(layers - name) && uns_str_starts(name, before[i]))
			return true;
	return false;
}

static bool is_projection(const char *name)
{
	static const char *const end[] = {
		"q_proj.weight",    "k_proj.weight",       "v_proj.weight",      "o_proj.weight",
		"out_proj.weight",  "qkv_proj.weight",     "gate_proj.weight",   "up_proj.weight",
		"down_proj.weight", "q_a_proj.weight",     "q_b_proj.weight",    "kv_a_proj_with_mqa.weight",
		"kv_b_proj.weight", "gate_up_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight",
		"w1.weight",        "w2.weight",           "w3.weight",          NULL
	};
	size_t i;

	for (i = 0; end[i]; i++)
		if (uns_name_ends(name, end[i]))
			return true;
	return false;
}

static bool is_scaled(const struct uns_named_tensor *t)
{
	const struct uns_shape *shape = uns_named_shape(t);

	return shape->n == 2 && uns_shape_elems(shape) && uns_dtype_info(t->out)->is_float &&
	       uns_dtype_size(t->out) >= 2 && is_in_layer(t->name) && is_projection(t->name);
}

/* Of a tensor with rows and columns: other modules have nothing to convert. */
static void keep_module(struct uns_fp8 *out, const char *name, struct uns_arena *arena)
{
	const char *dot = strrchr(name, '.');
	const char *module = dot ? uns_arena_strn(arena, name, (size_t)(dot - name)) : name;

	if (!module) {
		out->kept.failed = true;
		return;
	}
	uns_text_str(&out->kept, out->kept.len ? ", " : "");
	uns_text_json_str(&out->kept, module);
}

static int add_scaled(const struct uns_catalog *cat, const struct uns_named_tensor *t, struct uns_name_list *list,
		      struct uns_err *err)
{
	struct uns_named_tensor numbers = { .name = t->name, .out = UNS_F8_E4M3 };
	struct uns_named_tensor inverses = { .name = uns_arena_printf(list->arena, "%s_scale_inv", t->name),
					     .out = UNS_F32 };

	UNS_TRY(uns_scaled_make(cat, t, list->arena, &numbers.tensor, &inverses.tensor, err));
	UNS_TRY(uns_name_list_add(list, &numbers, err));
	return uns_name_list_add(list, &inverses, err);
}

int uns_fp8_apply(const struct uns_catalog *cat, const struct uns_tensor *const *tied, size_t n_tied,
		  struct uns_named_tensor **v, size_t *n, struct uns_arena *arena, struct uns_fp8 *out,
		  struct uns_err *err)
{
	UNS_CLEANUP(uns_name_list_fini) struct uns_name_list list = { .arena = arena };
	const struct uns_named_tensor *t = *v, *end = t + *n;
	size_t i;

	for (; t < end; t++) {
		out->n_scaled += is_scaled(t);
		if (is_scaled(t)) {
			UNS_TRY(add_scaled(cat, t, &list, err));
			continue;
		}
		if (uns_named_shape(t)->n > 1)
			keep_module(out, t->name, arena);
		UNS_TRY(uns_name_list_add(&list, t, err));
	}
	for (i = 0; i < n_tied; i++)
		keep_module(out, tied[i]->name, arena);
	if (!out->n_scaled)
		return uns_fail(err, -ENOTSUP, "no tensor of it is known as a linear projection of a decoder layer");
	uns_name_list_take(&list, v, n);
	return out->kept.failed ? uns_oom(err) : 0;
}

/* In front of the first key, with the file's own white space. */
int uns_fp8_add_config(const struct uns_fp8 *fp8, struct uns_span config, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *begin = (const char *)config.p, *inside = (const char *)memchr(begin, '{', uns_span_left(&config));
	size_t before, space;

	if (!inside)
		return uns_fail(err, -EBADMSG, "config.json: not a JSON object");
	before = (size_t)(++inside - begin);
	for (space = 0; before + space < uns_span_left(&config) && strchr(" \t\r\n", inside[space]); space++)
		;
	uns_text_add(&text, begin, before + space);
	uns_text_printf(&text,
			"\"%s\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": \"fp8\", "
			"\"weight_block_size\": [%d, %d], \"modules_to_not_convert\": [%s]}%s",
			QUANTIZATION, UNS_SCALED_BLOCK, UNS_SCALED_BLOCK, fp8->kept.len ? fp8->kept.p : "",
			inside[space] == '}' ? "" : ",");
	uns_text_add(&text, inside, uns_span_left(&config) - before);
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_add_text(out, "config.json", text.p, text.len,
				  "the checkpoint's config.json with the quantization_config of this view", err);
}
