/* Which key of config.json has which number, and which numbers are products of others. */
#include "megatron/sizes.h"

#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "names/config.h"

enum { MAX_KEYS = 3 };
#define MAX_SIDE (1 << 24) /* of an image */
#define MAX_SIZE (1ULL << 53) /* a sum of a few such numbers does not overflow */

#define VISION "vision_config." /* in front of a key: of the object of this name */

/* `otherwise`: the number that applies if none of the keys exists. */
static const struct {
	enum uns_megatron_size size;
	const char *key[MAX_KEYS];
	enum uns_megatron_size otherwise;
} recorded[] = {
	{ UNS_MG_VOCAB, { "vocab_size" }, UNS_MG_NONE },
	{ UNS_MG_LAYERS, { "num_hidden_layers" }, UNS_MG_NONE },
	{ UNS_MG_MTP_LAYERS, { "num_nextn_predict_layers", "mtp_num_hidden_layers" }, UNS_MG_NONE },
	{ UNS_MG_HIDDEN, { "hidden_size" }, UNS_MG_NONE },
	{ UNS_MG_HEADS, { "num_attention_heads" }, UNS_MG_NONE },
	{ UNS_MG_GROUPS, { "num_key_value_heads" }, UNS_MG_HEADS },
	{ UNS_MG_HEAD, { "head_dim", "attention_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_FFN, { "intermediate_size" }, UNS_MG_NONE },
	{ UNS_MG_EXPERTS, { "num_experts", "num_local_experts", "n_routed_experts" }, UNS_MG_NONE },
	{ UNS_MG_EXPERT_FFN, { "moe_intermediate_size" }, UNS_MG_NONE },
	{ UNS_MG_SHARED, { "n_shared_experts" }, UNS_MG_NONE },
	{ UNS_MG_EXPERT_LATENT, { "moe_latent_size" }, UNS_MG_NONE },
	{ UNS_MG_EXPERT_IN, { "moe_latent_size" }, UNS_MG_HIDDEN },
	{ UNS_MG_SHARED_FFN,
	  { "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size" },
	  UNS_MG_NONE },
	{ UNS_MG_DENSE_LAYERS, { "first_k_dense_replace" }, UNS_MG_NONE },
	{ UNS_MG_DENSE_FFN, { "intermediate_size_mlp" }, UNS_MG_NONE },
	{ UNS_MG_SPARSE_STEP, { "decoder_sparse_step", "interleave_moe_layer_step" }, UNS_MG_ONE },
	{ UNS_MG_Q_RANK, { "q_lora_rank" }, UNS_MG_NONE },
	{ UNS_MG_KV_RANK, { "kv_lora_rank" }, UNS_MG_NONE },
	{ UNS_MG_NOPE, { "qk_nope_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_ROPE, { "qk_rope_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_VALUE, { "v_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_LINEAR_KEY_HEAD, { "linear_key_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_LINEAR_VALUE_HEAD, { "linear_value_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_LINEAR_KEY_HEADS, { "linear_num_key_heads" }, UNS_MG_NONE },
	{ UNS_MG_LINEAR_VALUE_HEADS, { "linear_num_value_heads" }, UNS_MG_NONE },
	{ UNS_MG_KERNEL, { "linear_conv_kernel_dim" }, UNS_MG_NONE },
	{ UNS_MG_MAMBA_HEAD, { "mamba_head_dim" }, UNS_MG_NONE },
	{ UNS_MG_MAMBA_HEADS, { "mamba_num_heads" }, UNS_MG_NONE },
	{ UNS_MG_MAMBA_GROUPS, { "n_groups", "mamba_n_groups" }, UNS_MG_NONE },
	{ UNS_MG_MAMBA_STATE, { "ssm_state_size" }, UNS_MG_NONE },
	{ UNS_MG_MAMBA_KERNEL, { "conv_kernel", "mamba_d_conv" }, UNS_MG_NONE },
	{ UNS_MG_VISION_LAYERS, { VISION "depth", VISION "num_hidden_layers" }, UNS_MG_NONE },
	{ UNS_MG_VISION_HIDDEN, { VISION "hidden_size" }, UNS_MG_NONE },
	{ UNS_MG_VISION_HEADS, { VISION "num_heads", VISION "num_attention_heads" }, UNS_MG_NONE },
	{ UNS_MG_VISION_FFN, { VISION "intermediate_size" }, UNS_MG_NONE },
	{ UNS_MG_VISION_OUT, { VISION "out_hidden_size" }, UNS_MG_NONE },
	{ UNS_MG_VISION_PROJECTED, { VISION "projector_input_dim" }, UNS_MG_NONE },
	{ UNS_MG_VISION_ADAPTED, { VISION "projector_output_dim" }, UNS_MG_NONE },
	{ UNS_MG_VISION_FEATURES, { VISION "vision_output_dim" }, UNS_MG_NONE },
	{ UNS_MG_POSITIONS, { VISION "num_position_embeddings" }, UNS_MG_NONE },
	{ UNS_MG_CHANNELS, { VISION "in_channels", VISION "in_chans", VISION "num_channels" }, UNS_MG_NONE },
	{ UNS_MG_FRAMES, { VISION "temporal_patch_size" }, UNS_MG_NONE },
	{ UNS_MG_PATCH, { VISION "patch_size" }, UNS_MG_NONE },
	{ UNS_MG_MERGE, { VISION "spatial_merge_size" }, UNS_MG_NONE },
};

/* size = times * (a + b); it stays 0 if that does not fit. */
static const struct {
	enum uns_megatron_size size, times, a, b;
} computed[] = {
	{ UNS_MG_TWO_HIDDEN, UNS_MG_ONE, UNS_MG_HIDDEN, UNS_MG_HIDDEN },
	{ UNS_MG_QUERY, UNS_MG_HEADS, UNS_MG_HEAD, UNS_MG_NONE },
	{ UNS_MG_KEY, UNS_MG_GROUPS, UNS_MG_HEAD, UNS_MG_NONE },
	{ UNS_MG_KEYS_VALUES, UNS_MG_ONE, UNS_MG_KEY, UNS_MG_KEY },
	{ UNS_MG_QUERY_KEYS_VALUES, UNS_MG_ONE, UNS_MG_QUERY, UNS_MG_KEYS_VALUES },
	{ UNS_MG_GATE_AND_UP, UNS_MG_ONE, UNS_MG_FFN, UNS_MG_FFN },
	{ UNS_MG_EXPERT_GATE_AND_UP, UNS_MG_ONE, UNS_MG_EXPERT_FFN, UNS_MG_EXPERT_FFN },
	{ UNS_MG_SHARED_FFNS, UNS_MG_SHARED, UNS_MG_EXPERT_FFN, UNS_MG_NONE },
	{ UNS_MG_QUERIES, UNS_MG_HEADS, UNS_MG_NOPE, UNS_MG_ROPE },
	{ UNS_MG_KV_DOWN, UNS_MG_ONE, UNS_MG_KV_RANK, UNS_MG_ROPE },
	{ UNS_MG_KV_UP, UNS_MG_HEADS, UNS_MG_NOPE, UNS_MG_VALUE },
	{ UNS_MG_VALUES, UNS_MG_HEADS, UNS_MG_VALUE, UNS_MG_NONE },
	{ UNS_MG_LINEAR_KEY, UNS_MG_LINEAR_KEY_HEADS, UNS_MG_LINEAR_KEY_HEAD, UNS_MG_NONE },
	{ UNS_MG_LINEAR_VALUE, UNS_MG_LINEAR_VALUE_HEADS, UNS_MG_LINEAR_VALUE_HEAD, UNS_MG_NONE },
	{ UNS_MG_MAMBA_INNER, UNS_MG_MAMBA_HEADS, UNS_MG_MAMBA_HEAD, UNS_MG_NONE },
	{ UNS_MG_MAMBA_STATES, UNS_MG_MAMBA_GROUPS, UNS_MG_MAMBA_STATE, UNS_MG_NONE },
	{ UNS_MG_VISION_KEYS_VALUES, UNS_MG_ONE, UNS_MG_VISION_HIDDEN, UNS_MG_VISION_HIDDEN },
	{ UNS_MG_VISION_QKV, UNS_MG_ONE, UNS_MG_VISION_HIDDEN, UNS_MG_VISION_KEYS_VALUES },
	{ UNS_MG_PATCH_AREA, UNS_MG_PATCH, UNS_MG_PATCH, UNS_MG_NONE },
	{ UNS_MG_PATCH_VALUES, UNS_MG_CHANNELS, UNS_MG_PATCH_AREA, UNS_MG_NONE },
	{ UNS_MG_MERGE_AREA, UNS_MG_MERGE, UNS_MG_MERGE, UNS_MG_NONE },
	{ UNS_MG_MERGED, UNS_MG_VISION_HIDDEN, UNS_MG_MERGE_AREA, UNS_MG_NONE },
};

size_t uns_megatron_dims(enum uns_megatron_size columns, enum uns_megatron_size out[UNS_MG_MAX_DIMS])
{
	static const struct {
		enum uns_megatron_size columns, dim[UNS_MG_MAX_DIMS];
	} several[] = {
		{ UNS_MG_PATCHES, { UNS_MG_CHANNELS, UNS_MG_FRAMES, UNS_MG_PATCH, UNS_MG_PATCH } },
		{ UNS_MG_CONVOLUTION, { UNS_MG_ONE, UNS_MG_KERNEL } },
		{ UNS_MG_FLAT_PATCHES, { UNS_MG_CHANNELS, UNS_MG_PATCH, UNS_MG_PATCH } },
		{ UNS_MG_ONE_OF_VISION, { UNS_MG_ONE, UNS_MG_VISION_HIDDEN } },
		{ UNS_MG_EACH_PATCH, { UNS_MG_PATCHES_AND_ONE, UNS_MG_VISION_HIDDEN } },
		{ UNS_MG_MAMBA_CONVOLUTION, { UNS_MG_ONE, UNS_MG_MAMBA_KERNEL } },
	};
	size_t i, n = 0;

	for (i = 0; i < sizeof(several) / sizeof(several[0]); i++)
		if (several[i].columns == columns)
			for (; n < UNS_MG_MAX_DIMS && several[i].dim[n] != UNS_MG_NONE; n++)
				out[n] = several[i].dim[n];
	if (n == 0 && columns != UNS_MG_NONE)
		out[n++] = columns;
	return n;
}

const char *uns_megatron_size_key(enum uns_megatron_size size)
{
	size_t i;

	for (i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++)
		if (recorded[i].size == size)
			return recorded[i].key[0];
	for (i = 0; i < sizeof(computed) / sizeof(computed[0]); i++)
		if (computed[i].size == size)
			return uns_megatron_size_key(computed[i].a);
	return "numbers";
}

/* A number, or a list of equal ones: the sides of a square. */
static bool side_of(const cJSON *object, const char *key, int64_t *out)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, key), *item;

	if (!cJSON_IsArray(list))
		return uns_json_int(object, key, out);
	*out = 0;
	cJSON_ArrayForEach (item, list) {
		if (!cJSON_IsNumber(item) || item->valuedouble < 1 || item->valuedouble > MAX_SIDE ||
		    (*out && (double)*out != item->valuedouble))
			return false;
		*out = (int64_t)item->valuedouble;
	}
	return *out > 0;
}

/* The first of the keys that is a number above 0; 0 = there is none. */
static uint64_t number_of(const cJSON *text, const cJSON *vision, const char *const key[MAX_KEYS])
{
	int64_t v;
	size_t i;
	bool is_vision;

	for (i = 0; i < MAX_KEYS && key[i]; i++) {
		is_vision = uns_str_starts(key[i], VISION);
		if (side_of(is_vision ? vision : text, key[i] + (is_vision ? strlen(VISION) : 0), &v) && v > 0)
			return (uint64_t)v;
	}
	return 0;
}

/* Places of an image that the vision model knows: one for each patch, and one for all of it. */
static uint64_t patches_and_one(const cJSON *vision, uint64_t patch)
{
	int64_t image;
	uint64_t side;

	if (!patch || !side_of(vision, "image_size", &image) || image < 1 || image > MAX_SIDE)
		return 0;
	side = (uint64_t)image / patch;
	return side * side + 1;
}

/* How many patches are merged in each direction, where config.json has what becomes of the number of them. */
static uint64_t merged_by_ratio(const cJSON *root)
{
	const cJSON *ratio = cJSON_GetObjectItemCaseSensitive(root, "downsample_ratio");

	return cJSON_IsNumber(ratio) && ratio->valuedouble > 1e-3 && ratio->valuedouble <= 1
		       ? (uint64_t)(1 / ratio->valuedouble)
		       : 0;
}

static void numbers_read(const cJSON *root, const cJSON *text, const cJSON *vision, struct uns_megatron_sizes *out)
{
	const cJSON *deepstack = cJSON_GetObjectItemCaseSensitive(vision, "deepstack_visual_indexes");
	uint64_t *v = out->v, sum, product;
	size_t i;

	v[UNS_MG_ONE] = 1;
	for (i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
		v[recorded[i].size] = number_of(text, vision, recorded[i].key);
		if (!v[recorded[i].size])
			v[recorded[i].size] = v[recorded[i].otherwise];
	}
	if (!v[UNS_MG_HEAD] && v[UNS_MG_HEADS])
		v[UNS_MG_HEAD] = v[UNS_MG_HIDDEN] / v[UNS_MG_HEADS];
	if (!v[UNS_MG_MERGE])
		v[UNS_MG_MERGE] = merged_by_ratio(root);
	v[UNS_MG_PATCHES_AND_ONE] = patches_and_one(vision, v[UNS_MG_PATCH]);
	for (i = 0; i < sizeof(computed) / sizeof(computed[0]); i++)
		if (v[computed[i].a] && (v[computed[i].b] || computed[i].b == UNS_MG_NONE) &&
		    uns_u64_add(v[computed[i].a], v[computed[i].b], &sum) &&
		    uns_u64_mul(v[computed[i].times], sum, &product) && product <= MAX_SIZE)
			v[computed[i].size] = product;
	if (cJSON_IsArray(deepstack))
		v[UNS_MG_DEEPSTACK] = (uint64_t)cJSON_GetArraySize(deepstack);
}

/* A list of layers' numbers; *out stays NULL if there is none. */
static int layers_read(const cJSON *list, struct uns_arena *arena, const uint64_t **out, size_t *n, struct uns_err *err)
{
	const cJSON *item;
	uint64_t *v;

	if (!cJSON_IsArray(list))
		return 0;
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, uint64_t, (size_t)cJSON_GetArraySize(list) + 1), err);
	cJSON_ArrayForEach (item, list)
		if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e6)
			v[(*n)++] = (uint64_t)item->valuedouble;
	*out = v;
	return 0;
}

static int linear_layers_read(const cJSON *text, struct uns_arena *arena, struct uns_megatron_sizes *out,
			      struct uns_err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(text, "layer_types"), *item;
	int64_t step;
	bool *v;

	if (uns_json_int(text, "full_attention_interval", &step) && step > 0)
		out->full_attention_step = (uint64_t)step;
	if (!cJSON_IsArray(list))
		return 0;
	UNS_TRY_ALLOC(v = UNS_NEW_N(arena, bool, (size_t)cJSON_GetArraySize(list) + 1), err);
	cJSON_ArrayForEach (item, list)
		v[out->n_linear_layer++] = cJSON_IsString(item) && strcmp(item->valuestring, "linear_attention") == 0;
	out->linear_layer = v;
	return 0;
}

/* The sign of a hybrid model's layer, by config.json's name of it, today's or an older one; 0 = there is no such. */
static char hybrid_sign(const char *name)
{
	static const struct {
		const char *name;
		char sign;
	} names[] = {
		{ "linear_attention", 'M' }, { "mamba", 'M' }, { "full_attention", '*' },
		{ "attention", '*' },        { "mlp", '-' },   { "moe", 'E' },
	};
	size_t i;

	for (i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i].name, name) == 0)
			return names[i].sign;
	return 0;
}

/* Reads what each layer of a hybrid model is. The number of layers follows from it: transformers, too, does not look at
 * num_hidden_layers then. */
static int hybrid_read(const cJSON *text, struct uns_arena *arena, struct uns_megatron_sizes *out, struct uns_err *err)
{
	static const char list_key[] = "layers_block_type", text_key[] = "hybrid_override_pattern";
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(text, list_key), *item;
	const char *signs = cJSON_IsArray(list) ? NULL : uns_json_str(text, text_key);
	size_t n = 0;
	char *v;

	if (!signs && !cJSON_IsArray(list))
		return 0;
	if (signs) {
		n = strlen(signs);
		if (strspn(signs, "M*-E") != n)
			return uns_fail(err, -EBADMSG, "config.json: %s has a layer that unshard does not know: %c",
					text_key, signs[strspn(signs, "M*-E")]);
		UNS_TRY_ALLOC(out->hybrid = uns_arena_str(arena, signs), err);
	} else {
		UNS_TRY_ALLOC(v = UNS_NEW_N(arena, char, (size_t)cJSON_GetArraySize(list) + 1), err);
		cJSON_ArrayForEach (item, list) {
			v[n] = hybrid_sign(cJSON_GetStringValue(item));
			if (!v[n++])
				return uns_fail(err, -EBADMSG,
						"config.json: %s has a layer that unshard does not know: number %zu",
						list_key, n - 1);
		}
		out->hybrid = v;
	}
	out->v[UNS_MG_LAYERS] = n;
	return 0;
}

static int check_multiple(const struct uns_megatron_sizes *s, enum uns_megatron_size size, enum uns_megatron_size of,
			  struct uns_err *err)
{
	if (!s->v[of] || s->v[size] % s->v[of] == 0)
		return 0;
	return uns_fail(err, -EBADMSG, "config.json: %s is %llu, which is not a multiple of %s, %llu",
			uns_megatron_size_key(size), (unsigned long long)s->v[size], uns_megatron_size_key(of),
			(unsigned long long)s->v[of]);
}

/* transformers' own keys, and those of models that bring their own code. */
static void vision_switches_read(const cJSON *vision, struct uns_megatron_sizes *out)
{
	const char *norm = uns_json_str(vision, "norm_type");

	uns_json_bool(vision, "qkv_bias", &out->vision_bias);
	uns_json_bool(vision, "attention_bias", &out->vision_bias);
	uns_json_bool(vision, "qk_normalization", &out->vision_qk_norm);
	uns_json_bool(vision, "use_qk_norm", &out->vision_qk_norm);
	out->vision_centred = !norm || strcmp(norm, "layer_norm") == 0;
}

int uns_megatron_sizes_read(struct uns_span config, struct uns_arena *arena, struct uns_megatron_sizes *out,
			    struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const cJSON *text, *vision;

	*out = (struct uns_megatron_sizes){ 0 };
	if (uns_json_parse(config, &root, err) < 0)
		return uns_fail_in(err, "config.json");
	text = uns_config_text(root);
	vision = cJSON_GetObjectItemCaseSensitive(root, "vision_config");
	numbers_read(root, text, vision, out);
	vision_switches_read(vision, out);
	uns_json_bool(text, "attention_bias", &out->attention_bias);
	uns_json_bool(text, "mlp_bias", &out->mlp_bias);
	uns_json_bool(text, "use_qk_norm", &out->qk_norm);
	out->conv_bias = true;
	uns_json_bool(text, "use_conv_bias", &out->conv_bias);
	UNS_TRY(hybrid_read(text, arena, out, err));
	UNS_TRY(check_multiple(out, UNS_MG_HEADS, UNS_MG_GROUPS, err));
	UNS_TRY(check_multiple(out, UNS_MG_VISION_HIDDEN, UNS_MG_VISION_HEADS, err));
	UNS_TRY(check_multiple(out, UNS_MG_LINEAR_VALUE_HEADS, UNS_MG_LINEAR_KEY_HEADS, err));
	UNS_TRY(linear_layers_read(text, arena, out, err));
	UNS_TRY(layers_read(cJSON_GetObjectItemCaseSensitive(text, "moe_layers"), arena, &out->sparse_layer,
			    &out->n_sparse_layers, err));
	return layers_read(cJSON_GetObjectItemCaseSensitive(text, "mlp_only_layers"), arena, &out->dense_layer,
			   &out->n_dense_layers, err);
}

bool uns_megatron_is_linear(const struct uns_megatron_sizes *s, uint64_t layer)
{
	if (layer >= s->v[UNS_MG_LAYERS])
		return false;
	if (s->linear_layer)
		return layer < s->n_linear_layer && s->linear_layer[layer];
	return s->full_attention_step && (layer + 1) % s->full_attention_step != 0;
}

char uns_megatron_hybrid_layer(const struct uns_megatron_sizes *s, uint64_t layer)
{
	return s->hybrid && layer < s->v[UNS_MG_LAYERS] ? s->hybrid[layer] : 0;
}

static bool is_in(uint64_t layer, const uint64_t *v, size_t n)
{
	size_t i = 0;

	while (i < n && v[i] != layer)
		i++;
	return i < n;
}

bool uns_megatron_is_sparse(const struct uns_megatron_sizes *s, uint64_t layer)
{
	if (s->hybrid)
		return uns_megatron_hybrid_layer(s, layer) == 'E';
	if (s->sparse_layer)
		return is_in(layer, s->sparse_layer, s->n_sparse_layers);
	if (is_in(layer, s->dense_layer, s->n_dense_layers))
		return false;
	return s->v[UNS_MG_EXPERTS] && layer >= s->v[UNS_MG_DENSE_LAYERS] &&
	       (layer + 1) % s->v[UNS_MG_SPARSE_STEP] == 0;
}
