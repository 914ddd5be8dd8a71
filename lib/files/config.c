/* Reads config.json's keys. What is special in a family is in config_families.c, the edited text in config_dtype.c.
 * Pure: must not know files or views. */
#include "files/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/config_families.h"
#include "files/strip.h"

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

static int64_t first_int(const cJSON *object, const char *const *keys)
{
	int64_t v;

	for (; *keys; keys++)
		if (uns_json_int(object, *keys, &v) && v > 0)
			return v;
	return UNS_UNKNOWN;
}

static bool ties(const cJSON *root, const cJSON *text, unsigned family)
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

/* The embedding's width is not hidden_size if the family projects the embedding (OPT, ELECTRA). */
static bool embeds_narrower(const cJSON *text)
{
	static const char *const keys[] = { "word_embed_proj_dim", "embedding_size",
					    "input_embedding_size" };
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (cJSON_HasObjectItem(text, keys[i]))
			return true;
	return false;
}

static void sizes(const cJSON *text, struct uns_config_info *out)
{
	static const char *const vocab[] = { "vocab_size", NULL };
	static const char *const hidden[] = { "hidden_size", "n_embd", "d_model", NULL };
	static const char *const layers[] = { "num_hidden_layers", "n_layer", "n_layers",
					      "num_layers", NULL };
	int64_t n;

	out->vocab_size = first_int(text, vocab);
	out->hidden_size = embeds_narrower(text) ? UNS_UNKNOWN : first_int(text, hidden);
	out->num_hidden_layers = first_int(text, layers);
	out->extra_layers = (uns_json_int(text, "num_nextn_predict_layers", &n) && n > 0) ||
			    (uns_json_int(text, "mtp_num_hidden_layers", &n) && n > 0);
	/* mllama's embedding holds 8 rows more than its vocabulary. */
	out->padded_vocab = out->model_type && uns_str_starts(out->model_type, "mllama");
}

static bool have_file(const struct uns_config_info *out, const char *name)
{
	size_t i;

	for (i = 0; i < out->n_auto_map_files; i++)
		if (strcmp(out->auto_map_files[i], name) == 0)
			return true;
	return false;
}

/* "modeling_x.XModel" -> modeling_x.py. "repo--modeling_x.XModel" names a repository of the Hub: no file. */
static int auto_map_add(const char *ref, struct uns_arena *arena, struct uns_config_info *out,
			struct uns_err *err)
{
	const char *dot = ref ? strchr(ref, '.') : NULL, *name;

	if (!dot || dot == ref || strchr(ref, '/') || strstr(ref, "--"))
		return 0;
	name = uns_arena_printf(arena, "%.*s.py", (int)(dot - ref), ref);
	if (!name)
		return uns_oom(err);
	if (!have_file(out, name) &&
	    out->n_auto_map_files < sizeof(out->auto_map_files) / sizeof(out->auto_map_files[0]))
		out->auto_map_files[out->n_auto_map_files++] = name;
	return 0;
}

static int auto_map(const cJSON *map, struct uns_arena *arena, struct uns_config_info *out,
		    struct uns_err *err)
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

int uns_config_parse(struct uns_span json, struct uns_arena *arena, struct uns_config_info *out,
		     struct uns_err *err)
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
		out->model_type = uns_arena_str(arena, type);
		if (!out->model_type)
			return uns_oom(err);
		family = uns_config_family(type);
	}
	text = uns_config_text(root);
	type = text != root ? uns_json_str(text, "model_type") : NULL;
	if (type && !(out->text_type = uns_arena_str(arena, type)))
		return uns_oom(err);
	out->ties_embeddings = ties(root, text, family);
	version = uns_json_str(root, "transformers_version");
	out->transformers = version ? strtol(version, NULL, 10) : 0;
	out->renamed_on_save = family & UNS_FAMILY_RENAMED;
	sizes(text, out);
	return auto_map(cJSON_GetObjectItemCaseSensitive(root, "auto_map"), arena, out, err);
}

/* -- check against the tensors -- */

static bool is_weight(const struct uns_tensor *t)
{
	return t->role == UNS_ROLE_WEIGHT;
}

static bool ends_in_component(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return uns_str_ends(name, suffix) && (n == m || name[n - m - 1] == '.');
}

static bool is_embedding(const struct uns_tensor *t)
{
	return is_weight(t) && t->shape.n == 2 &&
	       (ends_in_component(t->name, "embed_tokens.weight") ||
		ends_in_component(t->name, "wte.weight") ||
		ends_in_component(t->name, "word_embeddings.weight"));
}

/* The input embedding. NULL = there is none, or there are several of different sizes, so that vocab_size may mean any
 * of them. */
static const struct uns_tensor *embedding(const struct uns_catalog *cat)
{
	const struct uns_tensor *found = NULL;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++) {
		const struct uns_tensor *t = &cat->tensors[i];

		if (!is_embedding(t))
			continue;
		if (found && !uns_shape_equal(&found->shape, &t->shape))
			return NULL;
		found = t;
	}
	return found;
}

static int check_embedding(const struct uns_config_info *info, const struct uns_catalog *cat,
			   struct uns_err *err)
{
	const struct uns_tensor *t = embedding(cat);

	if (!t)
		return 0;
	if (info->vocab_size > 0 && !info->padded_vocab && !cat->summary.is_megatron &&
	    t->shape.dim[0] != (uint64_t)info->vocab_size)
		return uns_fail(err, -EBADMSG, "vocab_size is %lld, but %s has %llu rows",
				(long long)info->vocab_size, t->name,
				(unsigned long long)t->shape.dim[0]);
	if (info->hidden_size > 0 && t->shape.dim[1] != (uint64_t)info->hidden_size)
		return uns_fail(err, -EBADMSG, "hidden_size is %lld, but %s has %llu columns",
				(long long)info->hidden_size, t->name,
				(unsigned long long)t->shape.dim[1]);
	return 0;
}

struct layer_stack {
	const char *prefix; /* "model" of "model.layers.7.mlp": borrowed, not terminated */
	size_t prefix_len;
	uint64_t n; /* highest index + 1 */
};

/* Splits "model.layers.7.mlp.weight" into its stack and index. Only the outermost stack counts, not a stack inside a
 * layer (experts, sub-blocks). */
static bool layer_of(const char *name, struct layer_stack *stack, uint64_t *index)
{
	static const char *const keys[] = { ".layers.", ".h.", ".blocks.", ".block." };
	const char *at = NULL, *hit, *digits = NULL;
	char *end;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		hit = strstr(name, keys[i]);
		if (!hit || (at && hit > at))
			continue;
		at = hit;
		digits = hit + strlen(keys[i]);
	}
	if (!at || *digits < '0' || *digits > '9')
		return false;
	*index = strtoull(digits, &end, 10);
	stack->prefix = name;
	stack->prefix_len = (size_t)(at - name);
	return *end == '.' && *index < UINT32_MAX;
}

static bool same_stack(const struct layer_stack *a, const struct layer_stack *b)
{
	return a->prefix_len == b->prefix_len && memcmp(a->prefix, b->prefix, a->prefix_len) == 0;
}

static bool is_text_stack(const struct layer_stack *s)
{
	static const char text[] = "language_model";
	const char *hit = memmem(s->prefix, s->prefix_len, text, sizeof(text) - 1);

	return hit != NULL;
}

/* The one stack of layers that num_hidden_layers must mean: the only one, or the only one of the
 * language model beside a vision or audio tower. */
static bool text_stack(const struct uns_catalog *cat, struct layer_stack *out)
{
	struct layer_stack all[8], s;
	size_t i, k, n = 0, n_text = 0, text = 0;
	uint64_t index;

	for (i = 0; i < cat->n_tensors; i++) {
		if (!is_weight(&cat->tensors[i]) || !layer_of(cat->tensors[i].name, &s, &index))
			continue;
		for (k = 0; k < n && !same_stack(&all[k], &s); k++)
			;
		if (k == n) {
			if (n == sizeof(all) / sizeof(all[0]))
				return false;
			all[n] = s;
			all[n++].n = 0;
		}
		if (index + 1 > all[k].n)
			all[k].n = index + 1;
	}
	for (k = 0; k < n; k++)
		if (is_text_stack(&all[k])) {
			n_text++;
			text = k;
		}
	if (n != 1 && n_text != 1)
		return false;
	*out = all[n == 1 ? 0 : text];
	return true;
}

static int check_layers(const struct uns_config_info *info, const struct uns_catalog *cat,
			struct uns_err *err)
{
	struct layer_stack s;
	uint64_t want = (uint64_t)info->num_hidden_layers;

	if (info->num_hidden_layers <= 0 || !text_stack(cat, &s) || s.n == want)
		return 0;
	if (s.n > want && info->extra_layers)
		return 0;
	return uns_fail(err, -EBADMSG, "num_hidden_layers is %lld, but %.*s has %llu layers",
			(long long)info->num_hidden_layers, (int)s.prefix_len, s.prefix,
			(unsigned long long)s.n);
}

/* Is it the name of a tensor of the model whose embedding is "BASE.embed_tokens.weight", or of what is in it below BASE? A
 * save without the embedding (of what is trained, say) has layers. */
static bool is_name_of(const char *name, const char *embedding)
{
	const char *inner = strchr(embedding, '.') + 1;
	struct layer_stack s;
	uint64_t index;

	if (strcmp(name, embedding) == 0 || strcmp(name, inner) == 0)
		return true;
	return layer_of(name, &s, &index) && s.prefix_len == (size_t)(inner - embedding) - 1 &&
	       memcmp(s.prefix, embedding, s.prefix_len) == 0;
}

const char *uns_config_name_missed(const struct uns_config_info *info, const struct uns_catalog *cat, const char *strip)
{
	const char *embedding = info->model_type ? uns_config_embedding(info->model_type) : NULL;
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	bool any = false;

	if (!embedding || cat->summary.is_megatron || cat->summary.adapter == UNS_ADAPTER_ALONE ||
	    cat->summary.adapter == UNS_ADAPTER_AND_BASE)
		return NULL;
	for (; t < end; t++) {
		if (!is_weight(t))
			continue;
		any = true;
		if (is_name_of(uns_strip_name(strip ? strip : "", t->name), embedding))
			return NULL;
	}
	return any ? embedding : NULL;
}

int uns_config_check(const struct uns_config_info *info, const struct uns_catalog *cat,
		     struct uns_err *err)
{
	/* An adapter holds some layers of a model whose config is elsewhere: there is nothing to compare. */
	if (cat->summary.adapter == UNS_ADAPTER_ALONE)
		return 0;
	UNS_TRY(check_embedding(info, cat, err));
	return check_layers(info, cat, err);
}
