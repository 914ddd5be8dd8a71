/* torchtune 0.6.1. Source: modules/peft/lora.py and dora.py (names), models/convert_weights.py (_FROM_HF, tune_to_hf),
 * models/qwen2/_convert_weights.py; which model_type is which: training/checkpointing/_checkpointer.py.
 *
 *   layers.N.attn.q_proj.lora_a.weight [r, in]    base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight
 *   layers.N.attn.q_proj.lora_b.weight [out, r]   base_model.model.model.layers.N.self_attn.q_proj.lora_B.weight
 *   layers.N.attn.q_proj.magnitude [out] base_model.model.model.layers.N.self_attn.q_proj.lora_magnitude_vector
 *
 * Its rotary embedding turns numbers 2 i and 2 i + 1 of a head together, and that of transformers i and i + head_dim
 * / 2. So the rows of queries and keys are in another order, but for Qwen2, for which torchtune has another embedding.
 * (Of Qwen2's adapters torchtune's own conversion to PEFT's names puts the rows in order all the same, and never those
 * of magnitudes. Here the adapter is what tune_to_hf makes of the merged model.) */
#include "files/other_lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/alike.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "model/joined_tensor.h"
#include "wire/json.h"

static const char TORCHTUNE[] = "torchtune", BRIDGE[] = "Megatron-Bridge";

/* What others call a LoRA's matrices. */
static const struct {
	const char *part, *program;
	const char *in_peft; /* NULL = megatron/lora.c converts it */
} parts[] = {
	{ ".lora_a.weight", TORCHTUNE, "lora_A.weight" },
	{ ".lora_b.weight", TORCHTUNE, "lora_B.weight" },
	{ ".linear_in.weight", BRIDGE, NULL },
	{ ".linear_out.weight", BRIDGE, NULL },
	{ ".weight_magnitude", BRIDGE, NULL },
};
static const char OF_BRIDGE[] = ".adapter."; /* in front of its parts, with or without a component in between */
static const char MAGNITUDE[] = ".magnitude"; /* any program may call something else so */
static const char MAGNITUDE_IN_PEFT[] = "lora_magnitude_vector";

enum rows { ROWS_AS_THEY_ARE, ROWS_OF_QUERIES, ROWS_OF_KEYS };

static const struct {
	const char *name, *in_peft;
	enum rows rows;
} modules[] = {
	{ "attn.q_proj", "self_attn.q_proj", ROWS_OF_QUERIES },
	{ "attn.k_proj", "self_attn.k_proj", ROWS_OF_KEYS },
	{ "attn.v_proj", "self_attn.v_proj", 0 },
	{ "attn.output_proj", "self_attn.o_proj", 0 },
	{ "mlp.w1", "mlp.gate_proj", 0 },
	{ "mlp.w2", "mlp.down_proj", 0 },
	{ "mlp.w3", "mlp.up_proj", 0 },
};

static const struct {
	const char *model_type;
	bool by_pairs; /* of rows: as described above */
} families[] = { { "llama", true }, { "mistral", true }, { "gemma", true }, { "qwen2", false } };

struct converting {
	const struct uns_catalog *cat;
	struct uns_arena *arena;
	bool by_pairs;
	int64_t heads[3], head_dim; /* of enum rows */
	struct uns_named_tensor *v;
	size_t n;
};

/* The number of the part whose name a tensor has; that of all of them = it is none. */
static size_t part_find(const char *name)
{
	const size_t len = strlen(name), all = sizeof(parts) / sizeof(*parts);
	size_t i, n;

	for (i = 0; i < all; i++) {
		n = strlen(parts[i].part);
		if (len > n && memcmp(name + len - n, parts[i].part, n) == 0)
			return parts[i].program == BRIDGE && !strstr(name, OF_BRIDGE) ? all : i;
	}
	return all;
}

const char *uns_other_lora_program(const char *name)
{
	const size_t i = part_find(name);

	return i < sizeof(parts) / sizeof(*parts) ? parts[i].program : NULL;
}

/* What the adapter has of the tensor: where the part's name begins, and its name in PEFT's files. NULL = it is none of
 * its tensors. */
static const char *part_of(const struct uns_tensor *t, const char **in_peft)
{
	const size_t len = strlen(t->name), i = part_find(t->name);

	if (!uns_role_is_model(t->role))
		return NULL;
	*in_peft = MAGNITUDE_IN_PEFT;
	if (uns_str_ends(t->name, MAGNITUDE))
		return t->name + len - strlen(MAGNITUDE);
	if (i == sizeof(parts) / sizeof(*parts))
		return NULL;
	*in_peft = parts[i].in_peft;
	return t->name + len - strlen(parts[i].part);
}

void uns_other_lora_find(struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	struct uns_alike alike = { 0 };
	bool is_new;

	for (; t < end; t++) {
		if (!uns_role_is_model(t->role))
			continue;
		uns_alike_find(&alike, t->name, &is_new);
		if (!is_new || !uns_other_lora_program(t->name))
			continue;
		cat->summary.adapter = UNS_ADAPTER_OTHER;
		return;
	}
}

bool uns_other_lora_has(const struct uns_tensor *t)
{
	const char *in_peft;

	return part_of(t, &in_peft) != NULL;
}

int uns_other_lora_refuse(const struct uns_catalog *cat, const struct uns_tensor *t, const char *why,
			  struct uns_err *err)
{
	const char *program = uns_other_lora_program(t->name);

	if (!program)
		program = cat->summary.is_megatron ? "PEFT on Megatron's modules" : TORCHTUNE;
	return UNS_CATALOG_FAIL(cat, err, OTHER_LORA, .scope = UNS_SCOPE_WEIGHTS, .tensor = t->name,
				.arg = { { "what", uns_str(program) }, { "cause", uns_str(why) } });
}

/* -- config.json -- */

static const char *config_read(struct converting *c, const cJSON *json)
{
	const char *type = uns_json_str(json, "model_type");
	int64_t hidden = 0;
	size_t i = 0;

	while (i < sizeof(families) / sizeof(*families) && !(type && strcmp(type, families[i].model_type) == 0))
		i++;
	if (i == sizeof(families) / sizeof(*families))
		return "the order of rows is known of the model_types llama, mistral, gemma and qwen2 alone";
	c->by_pairs = families[i].by_pairs;
	if (!uns_json_int(json, "num_attention_heads", &c->heads[ROWS_OF_QUERIES]) || c->heads[ROWS_OF_QUERIES] <= 0)
		return "config.json has no num_attention_heads";
	if (!uns_json_int(json, "num_key_value_heads", &c->heads[ROWS_OF_KEYS]))
		c->heads[ROWS_OF_KEYS] = c->heads[ROWS_OF_QUERIES];
	if (!uns_json_int(json, "head_dim", &c->head_dim) && uns_json_int(json, "hidden_size", &hidden))
		c->head_dim = hidden / c->heads[ROWS_OF_QUERIES];
	if (c->head_dim <= 0 || c->head_dim % 2 || c->heads[ROWS_OF_KEYS] <= 0)
		return "config.json does not have the size of a head";
	return NULL;
}

/* -- tensors -- */

/* "layers.3.attn.q_proj" -> "model.layers.3.self_attn.q_proj"; *out = NULL: it is no module that torchtune adapts. */
static int module_convert(struct converting *c, const char *name, size_t len, const char **out, enum rows *rows,
			  struct uns_err *err)
{
	static const char LAYERS[] = "layers.", OUTPUT[] = "output";
	const char *at = name + strlen(LAYERS);
	const size_t digits = strncmp(name, LAYERS, strlen(LAYERS)) == 0 ? strspn(at, "0123456789") : 0;
	size_t i;

	*out = NULL;
	*rows = ROWS_AS_THEY_ARE;
	if (len == strlen(OUTPUT) && strncmp(name, OUTPUT, len) == 0)
		*out = "lm_head";
	for (i = 0; digits && at[digits] == '.' && !*out && i < sizeof(modules) / sizeof(*modules); i++) {
		const char *rest = at + digits + 1;

		if ((size_t)(name + len - rest) != strlen(modules[i].name) ||
		    strncmp(rest, modules[i].name, strlen(modules[i].name)) != 0)
			continue;
		*rows = modules[i].rows;
		*out = uns_arena_printf(c->arena, "model.%.*s.%s", (int)(at + digits - name), name, modules[i].in_peft);
		UNS_TRY_ALLOC(*out, err);
	}
	return 0;
}

/* Rows 2 i and 2 i + 1 of each head become i and i + head_dim / 2. */
static int rows_order(struct converting *c, const struct uns_tensor *t, enum rows of, struct uns_named_tensor *out,
		      struct uns_err *err)
{
	const uint64_t r = uns_shape_row_elems(&t->shape), half = (uint64_t)c->head_dim / 2;
	const struct uns_joined_order order = { .n_planes = (uint64_t)c->heads[of],
						.plane_elems = 2 * half * r,
						.loop = { { 2, r }, { half, 2 * r }, { r, 1 } } };
	struct uns_named_tensor as_is = *out;

	as_is.name = t->name;
	if (!t->shape.n || t->shape.dim[0] != (uint64_t)c->heads[of] * 2 * half)
		return uns_other_lora_refuse(c->cat, t, "its rows are not those of config.json's heads", err);
	return uns_joined_make(c->cat, out->name, &as_is, 1, &order, &t->shape, c->arena, out, err);
}

static int tensor_convert(struct converting *c, const struct uns_tensor *t, const char *part, const char *in_peft,
			  struct uns_err *err)
{
	struct uns_named_tensor *out = &c->v[c->n];
	const char *module;
	enum rows rows;

	UNS_TRY(module_convert(c, t->name, (size_t)(part - t->name), &module, &rows, err));
	if (!module)
		return uns_other_lora_refuse(c->cat, t, "it is of no module of a Llama model", err);
	*out = (struct uns_named_tensor){ uns_arena_printf(c->arena, "base_model.model.%s.%s", module, in_peft), t,
					  t->dtype, NULL };
	UNS_TRY_ALLOC(out->name, err);
	if (rows != ROWS_AS_THEY_ARE && c->by_pairs && strcmp(in_peft, parts[0].in_peft) != 0)
		UNS_TRY(rows_order(c, t, rows, out, err));
	c->n++;
	return 0;
}

static int convert(struct converting *c, const cJSON *json, struct uns_err *err)
{
	const struct uns_tensor *t = c->cat->tensors, *end = t + c->cat->n_tensors;
	const char *part, *in_peft, *why = json ? config_read(c, json) : "no config.json of its model was found";

	for (; t < end; t++) {
		part = part_of(t, &in_peft);
		if (!part)
			continue;
		if (!in_peft || why)
			return uns_other_lora_refuse(c->cat, t, in_peft ? why : "it is in no torch_dist checkpoint",
						     err);
		UNS_TRY(tensor_convert(c, t, part, in_peft, err));
	}
	return 0;
}

int uns_other_lora_convert(const struct uns_catalog *cat, struct uns_span config, struct uns_arena *arena,
			   struct uns_other_lora *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct converting c = { .cat = cat, .arena = arena };

	UNS_TRY_ALLOC(c.v = UNS_NEW_N(arena, struct uns_named_tensor, cat->n_tensors + 1), err);
	if (uns_span_left(&config))
		UNS_TRY(uns_json_parse(config, &json, err));
	UNS_TRY(convert(&c, json, err));
	*out = (struct uns_other_lora){ c.v, c.n };
	return 0;
}
