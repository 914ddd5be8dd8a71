/* Reads config.json's keys, and compares them with a checkpoint's tensors. What is special in a family is in
 * config_families.c, the edited text in config_dtype.c. */
#include "names/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "names/config_families.h"
#include "names/template.h"

/* -- parse -- */

const cJSON *uns_config_text(const cJSON *root)
{
	static const char *const keys[] = { "text_config", "llm_config", "language_config" };
	const cJSON *part;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		part = cJSON_GetObjectItemCaseSensitive(root, keys[i]);
		if (cJSON_IsObject(part))
			return part;
	}
	return root;
}

/* The first of the keys, whose list ends with NULL, that is a number above 0. */
static int64_t first_int(const cJSON *object, const char *const *keys)
{
	int64_t v;

	for (; *keys; keys++)
		if (uns_json_int(object, *keys, &v) && v > 0)
			return v;
	return UNS_UNKNOWN;
}

static bool ties_embeddings(const cJSON *root, const cJSON *text, unsigned family)
{
	bool top, nested = false, has_top = uns_json_bool(root, "tie_word_embeddings", &top);

	if (text != root)
		uns_json_bool(text, "tie_word_embeddings", &nested);
	if (nested && (family & UNS_FAMILY_LIFTS_OVER))
		return true;
	if (has_top)
		return top;
	return (family & UNS_FAMILY_TIES) || (nested && (family & UNS_FAMILY_LIFTS));
}

static void sizes_read(const cJSON *text, struct uns_config_info *out)
{
	static const char *const vocab[] = { "vocab_size", NULL };
	static const char *const hidden[] = { "hidden_size", "n_embd", "d_model", NULL };
	static const char *const layers[] = { "num_hidden_layers", "n_layer", "n_layers", "num_layers", NULL };
	/* The embedding's width is not hidden_size if the family projects the embedding (OPT, ELECTRA). */
	static const char *const narrower[] = { "word_embed_proj_dim", "embedding_size", "input_embedding_size", NULL };
	const char *const *key = narrower;
	int64_t n;

	while (*key && !cJSON_HasObjectItem(text, *key))
		key++;
	out->vocab_size = first_int(text, vocab);
	out->hidden_size = *key ? UNS_UNKNOWN : first_int(text, hidden);
	out->num_hidden_layers = first_int(text, layers);
	out->extra_layers = (uns_json_int(text, "num_nextn_predict_layers", &n) && n > 0) ||
			    (uns_json_int(text, "mtp_num_hidden_layers", &n) && n > 0);
	/* mllama's embedding holds 8 rows more than its vocabulary, Moshi's one. */
	out->padded_vocab =
		out->model_type && (uns_str_starts(out->model_type, "mllama") || strcmp(out->model_type, "moshi") == 0);
}

/* "modeling_x.XModel" -> modeling_x.py. "repo--modeling_x.XModel" names a repository of the Hub: no file. */
static int auto_map_add(const char *ref, struct uns_arena *arena, struct uns_config_info *out, struct uns_err *err)
{
	const char *dot = ref ? strchr(ref, '.') : NULL, *name;
	size_t i = 0;

	if (!dot || dot == ref || strchr(ref, '/') || strstr(ref, "--"))
		return 0;
	UNS_TRY_ALLOC(name = uns_arena_printf(arena, "%.*s.py", (int)(dot - ref), ref), err);
	while (i < out->n_auto_map_files && strcmp(out->auto_map_files[i], name) != 0)
		i++;
	if (i == out->n_auto_map_files && i < sizeof(out->auto_map_files) / sizeof(out->auto_map_files[0]))
		out->auto_map_files[out->n_auto_map_files++] = name;
	return 0;
}

static int auto_map_read(const cJSON *map, struct uns_arena *arena, struct uns_config_info *out, struct uns_err *err)
{
	const cJSON *entry, *item;

	cJSON_ArrayForEach (entry, map) {
		UNS_TRY(auto_map_add(cJSON_GetStringValue(entry), arena, out, err));
		if (!cJSON_IsArray(entry)) /* a tokenizer's value is a list: a slow and a fast class */
			continue;
		cJSON_ArrayForEach (item, entry)
			UNS_TRY(auto_map_add(cJSON_GetStringValue(item), arena, out, err));
	}
	return 0;
}

const char *uns_config_stem(const struct uns_config_info *info)
{
	return info->is_diffusers ? "diffusion_pytorch_model" : "model";
}

const char *uns_config_loader(const struct uns_config_info *info)
{
	return info->is_diffusers ? "diffusers.AutoModel.from_pretrained(\"%s\")"
				  : "AutoModelForCausalLM.from_pretrained(\"%s\")";
}

int uns_config_parse(struct uns_span json, struct uns_arena *arena, struct uns_config_info *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const cJSON *text;
	const char *type, *version;
	unsigned family = 0;

	*out = (struct uns_config_info){ 0 };
	if (uns_json_parse(json, &root, err) < 0)
		return uns_fail_in(err, "config.json");
	if (!cJSON_IsObject(root))
		return uns_fail(err, -EBADMSG, "config.json: not a JSON object");
	type = uns_json_str(root, "model_type");
	if (type) {
		UNS_TRY_ALLOC(out->model_type = uns_arena_str(arena, type), err);
		family = uns_config_family(type);
	}
	out->is_diffusers = !type && uns_json_str(root, "_class_name");
	text = uns_config_text(root);
	type = text != root ? uns_json_str(text, "model_type") : NULL;
	if (type && !(out->text_type = uns_arena_str(arena, type)))
		return uns_oom(err);
	out->ties_embeddings = ties_embeddings(root, text, family);
	version = uns_json_str(root, "transformers_version");
	out->transformers = version ? strtol(version, NULL, 10) : 0;
	out->renamed_on_save = family & UNS_FAMILY_RENAMED;
	sizes_read(text, out);
	out->layers = uns_config_layers_read(text, out->text_type ? out->text_type : out->model_type);
	return auto_map_read(cJSON_GetObjectItemCaseSensitive(root, "auto_map"), arena, out, err);
}

/* -- check against the tensors -- */

static bool is_weight(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_WEIGHT;
}

static bool is_embedding(const char *name)
{
	static const char *const ends[] = { "embed_tokens.weight", "wte.weight", "word_embeddings.weight" };
	size_t i;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		if (uns_name_ends(name, ends[i]))
			return true;
	return false;
}

/* Compares the input embedding, if there is one. If there are several of different sizes, vocab_size may mean any. */
static int embedding_check(const struct uns_config_info *info, const struct uns_catalog *cat, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors, *found = NULL;

	for (; t < end; t++) {
		if (!is_weight(t) || t->shape.n != 2 || !is_embedding(t->name))
			continue;
		if (found && !uns_shape_equal(&found->shape, &t->shape))
			return 0;
		found = t;
	}
	if (!found)
		return 0;
	if (info->vocab_size > 0 && !info->padded_vocab && !cat->summary.is_megatron &&
	    found->shape.dim[0] != (uint64_t)info->vocab_size)
		return uns_fail(err, -EBADMSG, "vocab_size is %lld, but %s has %llu rows", (long long)info->vocab_size,
				found->name, (unsigned long long)found->shape.dim[0]);
	if (info->hidden_size > 0 && found->shape.dim[1] != (uint64_t)info->hidden_size)
		return uns_fail(err, -EBADMSG, "hidden_size is %lld, but %s has %llu columns",
				(long long)info->hidden_size, found->name, (unsigned long long)found->shape.dim[1]);
	return 0;
}

struct layer_stack {
	const char *prefix; /* "model" of "model.layers.7.mlp": borrowed, not terminated */
	size_t prefix_len;
	uint64_t n; /* highest index + 1 */
	size_t len; /* of the last name that was found to be of it, up to the dot behind the index */
};

/* Splits "model.layers.7.mlp.weight" into its stack and index. Only the outermost stack counts, not a stack inside a
 * layer (experts, sub-blocks). */
static bool layer_of(const char *name, struct layer_stack *stack, uint64_t *index)
{
	static const char *const keys[] = { ".layers.", ".h.", ".blocks.", ".block.", ".layer." };
	const char *at = NULL, *hit, *digits = NULL;
	char *end;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		hit = strstr(name, keys[i]);
		if (uns_str_starts(name, keys[i] + 1))
			hit = name;
		if (!hit || (at && hit > at))
			continue;
		at = hit;
		digits = hit + strlen(keys[i]) - (hit == name && *name != '.');
	}
	if (!at || *digits < '0' || *digits > '9')
		return false;
	*index = strtoull(digits, &end, 10);
	stack->prefix = name;
	stack->prefix_len = (size_t)(at - name);
	stack->len = (size_t)(end + 1 - name);
	return *end == '.' && *index < UINT32_MAX;
}

/* The one stack of layers that num_hidden_layers must mean: the only one, or the only one of the language model beside
 * a vision or audio tower. */
static bool text_stack(const struct uns_catalog *cat, struct layer_stack *out)
{
	static const char language[] = "language_model";
	struct layer_stack all[8], s = { .prefix = "", .len = 1 };
	size_t i, k, n = 0, n_text = 0, text = 0;
	uint64_t index;

	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_weight(&cat->tensors[i]) || strncmp(cat->tensors[i].name, s.prefix, s.len) == 0)
			continue; /* of the same layer as the one before */
		if (!layer_of(cat->tensors[i].name, &s, &index)) {
			s = (struct layer_stack){ .prefix = "", .len = 1 };
			continue;
		}
		for (k = 0; k < n; k++)
			if (all[k].prefix_len == s.prefix_len && memcmp(all[k].prefix, s.prefix, s.prefix_len) == 0)
				break;
		if (k == sizeof(all) / sizeof(all[0]))
			return false;
		if (k == n) {
			all[n] = s;
			all[n++].n = 0;
		}
		if (index + 1 > all[k].n)
			all[k].n = index + 1;
	}
	for (k = 0; k < n; k++)
		if (memmem(all[k].prefix, all[k].prefix_len, language, strlen(language))) {
			n_text++;
			text = k;
		}
	if (n != 1 && n_text != 1)
		return false;
	*out = all[n == 1 ? 0 : text];
	return true;
}

int uns_config_check(const struct uns_config_info *info, const struct uns_catalog *cat, struct uns_err *err)
{
	const uint64_t want = (uint64_t)info->num_hidden_layers;
	struct layer_stack s;

	/* An adapter holds some layers of a model whose config is elsewhere: there is nothing to compare. */
	if (cat->summary.adapter == UNS_ADAPTER_ALONE)
		return 0;
	UNS_TRY(embedding_check(info, cat, err));
	if (!text_stack(cat, &s))
		return 0;
	UNS_TRY(uns_config_layers_check(&info->layers, cat, s.prefix, s.prefix_len, err));
	if (info->num_hidden_layers <= 0 || s.n == want || (s.n > want && info->extra_layers))
		return 0;
	return uns_fail(err, -EBADMSG, "num_hidden_layers is %lld, but %.*s has %llu layers",
			(long long)info->num_hidden_layers, (int)s.prefix_len, s.prefix, (unsigned long long)s.n);
}
