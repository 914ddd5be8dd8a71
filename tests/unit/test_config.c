/* config.json: facts, the check against tensors, and the text with another dtype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "files/adapter.h"
#include "names/config.h"

static struct uns_span span(const char *s)
{
	return uns_span_of(s, strlen(s));
}

/* -- ties, from transformers 5.23's classes -- */

static void ties(void **state)
{
	static const struct {
		const char *json;
		bool want;
	} cases[] = {
		{ "{}", false },
		{ "{\"model_type\":\"llama\"}", false },
		{ "{\"model_type\":\"llama\",\"tie_word_embeddings\":true}", true },
		{ "{\"model_type\":\"gpt2\"}", true },
		{ "{\"model_type\":\"gpt2\",\"tie_word_embeddings\":false}", false },
		{ "{\"model_type\":\"gemma2\"}", true },
		{ "{\"model_type\":\"albert\"}", true }, /* first and last rows of the table */
		{ "{\"model_type\":\"zaya\"}", true },
		{ "{\"model_type\":\"nobody-knows\"}", false },
		/* a nested text model: lifted only by the families that do */
		{ "{\"model_type\":\"llava\",\"text_config\":{\"tie_word_embeddings\":true}}", true },
		{ "{\"model_type\":\"llava\",\"tie_word_embeddings\":false,"
		  "\"text_config\":{\"tie_word_embeddings\":true}}",
		  true },
		{ "{\"model_type\":\"perception_lm\",\"text_config\":{\"tie_word_embeddings\":true}"
		  "}",
		  true },
		{ "{\"model_type\":\"perception_lm\",\"tie_word_embeddings\":false,"
		  "\"text_config\":{\"tie_word_embeddings\":true}}",
		  false },
		{ "{\"model_type\":\"idefics3\",\"text_config\":{\"tie_word_embeddings\":true}}", false },
		{ "{\"model_type\":\"gemma3\",\"text_config\":{}}", true },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_config_info info;
		struct uns_err err = { 0 };

		assert_int_equal(uns_config_parse(span(cases[i].json), &arena, &info, &err), 0);
		if (info.ties_embeddings != cases[i].want)
			fail_msg("%s: ties_embeddings = %d", cases[i].json, info.ties_embeddings);
		uns_arena_fini(&arena);
	}
}

static void reads_facts(void **state)
{
	static const char json[] = "{\"model_type\":\"qwen3_moe\",\"vocab_size\":100,\"hidden_size\":16,"
				   "\"num_hidden_layers\":2,\"auto_map\":{\"AutoConfig\":\"configuration_x.XConfig\","
				   "\"AutoModel\":\"modeling_x.XModel\",\"AutoModelForCausalLM\":\"modeling_x.XLM\","
				   "\"AutoTokenizer\":[\"tok_x.Slow\",null],\"AutoProcessor\":\"a/b--proc.P\","
				   "\"AutoFeatureExtractor\":\"../evil.E\"}}";
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_config_info info;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_config_parse(span(json), &arena, &info, &err), 0);
	assert_string_equal(info.model_type, "qwen3_moe");
	assert_true(info.renamed_on_save);
	assert_int_equal(info.vocab_size, 100);
	assert_int_equal(info.hidden_size, 16);
	assert_int_equal(info.num_hidden_layers, 2);
	assert_int_equal(info.n_auto_map_files, 3);
	assert_string_equal(info.auto_map_files[0], "configuration_x.py");
	assert_string_equal(info.auto_map_files[1], "modeling_x.py");
	assert_string_equal(info.auto_map_files[2], "tok_x.py");
	uns_arena_fini(&arena);
}

static void refuses(void **state)
{
	static const struct {
		const char *json, *why;
	} cases[] = {
		{ "{\"a\":", "config.json" },
		{ "[1]", "config.json: not a JSON object" },
		{ "", "config.json" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_config_info info;
		struct uns_span out;
		struct uns_err err = { 0 }, err2 = { 0 };

		assert_int_equal(uns_config_parse(span(cases[i].json), &arena, &info, &err), -EBADMSG);
		assert_non_null(strstr(err.text, cases[i].why));
		assert_int_equal(uns_config_with_dtype(span(cases[i].json), "float16", &arena, &out, &err2), -EBADMSG);
		assert_non_null(strstr(err2.text, cases[i].why));
		uns_arena_fini(&arena);
	}
}

/* -- check -- */

static struct uns_tensor tensor(const char *name, uint32_t n, uint64_t a, uint64_t b)
{
	return (struct uns_tensor){ .name = name,
				    .key = name,
				    .role = UNS_ROLE_WEIGHT,
				    .dtype = UNS_F32,
				    .shape = { .n = n, .dim = { a, b } } };
}

static int check(const char *json, const struct uns_tensor *tensors, size_t n, struct uns_err *err)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_tensor copy[4];
	struct uns_catalog cat = { .tensors = copy, .n_tensors = n };
	struct uns_config_info info;
	int code;

	assert_true(n <= sizeof(copy) / sizeof(copy[0]));
	memcpy(copy, tensors, n * sizeof(*copy));
	code = uns_adapter_find(&cat, err);
	if (code == 0)
		code = uns_config_parse(span(json), &arena, &info, err);
	if (code == 0)
		code = uns_config_check(&info, &cat, err);
	uns_arena_fini(&arena);
	return code;
}

#define LAYER(type, more) "{\"model_type\":\"" type "\",\"hidden_size\":8," more "}"

static void checks(void **state)
{
	const struct uns_tensor llm[] = {
		tensor("model.embed_tokens.weight", 2, 100, 16),
		tensor("model.layers.0.mlp.weight", 2, 16, 16),
		tensor("model.layers.1.mlp.weight", 2, 16, 16),
	};
	const struct uns_tensor vlm[] = {
		tensor("model.visual.blocks.7.w", 2, 8, 8),
		tensor("model.language_model.layers.1.w", 2, 8, 8),
		tensor("model.language_model.embed_tokens.weight", 2, 100, 16),
	};
	const struct uns_tensor two_stacks[] = {
		tensor("encoder.block.3.w", 2, 8, 8),
		tensor("decoder.block.5.w", 2, 8, 8),
	};
	const struct uns_tensor two_embeddings[] = {
		tensor("thinker.model.embed_tokens.weight", 2, 100, 16),
		tensor("talker.model.embed_tokens.weight", 2, 50, 8),
	};
	const struct uns_tensor adapter[] = {
		tensor("base_model.model.model.layers.0.q.lora_A.weight", 2, 8, 8),
	};
	const struct uns_tensor experts[] = {
		tensor("model.layers.0.mlp.experts.layers.9.w", 2, 8, 8),
	};
	const struct uns_tensor layer[] = {
		tensor("model.layers.0.self_attn.q_proj.weight", 2, 16, 8),
		tensor("model.layers.0.self_attn.k_proj.weight", 2, 4, 8),
		tensor("model.layers.0.mlp.gate_proj.weight", 2, 24, 8),
	};
	const struct uns_tensor of_experts[] = {
		tensor("model.layers.0.block_sparse_moe.experts.4.w1.weight", 2, 24, 8),
	};
	const struct uns_tensor fused[] = {
		tensor("model.layers.0.mlp.experts.gate_up_proj", 3, 5, 24),
	};
	const struct uns_tensor towers[] = {
		tensor("model.vision_tower.layers.0.self_attn.q_proj.weight", 2, 12, 8),
		tensor("model.language_model.layers.0.self_attn.q_proj.weight", 2, 16, 8),
	};
	const struct {
		const char *json;
		const struct uns_tensor *v;
		size_t n;
		const char *why; /* NULL = accepted */
	} cases[] = {
		{ LAYER("llama", "\"num_attention_heads\":4,\"head_dim\":4"), layer, 3, NULL },
		{ LAYER("llama", "\"num_attention_heads\":8,\"head_dim\":4"), layer, 3,
		  "num_attention_heads x head_dim is 32, but model.layers.0.self_attn.q_proj.weight has 16 rows" },
		{ LAYER("qwen3", "\"num_key_value_heads\":2,\"head_dim\":4"), layer, 3,
		  "num_key_value_heads x head_dim is 8, but model.layers.0.self_attn.k_proj.weight has 4 rows" },
		{ LAYER("qwen2", "\"num_attention_heads\":2,\"num_key_value_heads\":2"), layer, 3,
		  "num_attention_heads x head_dim is 8, but model.layers.0.self_attn.q_proj.weight has 16 rows" },
		{ LAYER("gemma", "\"num_attention_heads\":2,\"num_key_value_heads\":2"), layer, 3, NULL },
		{ LAYER("mistral", "\"intermediate_size\":12"), layer, 3,
		  "intermediate_size is 12, but model.layers.0.mlp.gate_proj.weight has 24 rows" },
		{ LAYER("qwen3_next", "\"num_attention_heads\":2,\"head_dim\":4,\"intermediate_size\":12"), layer, 3,
		  NULL },
		{ LAYER("mixtral", "\"num_local_experts\":5"), of_experts, 1, NULL },
		{ LAYER("mixtral", "\"num_local_experts\":2"), of_experts, 1,
		  "the number of experts is 2, but model.layers.0.block_sparse_moe.experts.4.w1.weight is one of 5 or "
		  "more" },
		{ LAYER("qwen3_moe", "\"num_experts\":4"), fused, 1,
		  "the number of experts is 4, but model.layers.0.mlp.experts.gate_up_proj is one of 5 or more" },
		{ "{\"model_type\":\"llava\",\"text_config\":" LAYER("llama", "\"num_attention_heads\":4,"
									      "\"head_dim\":4") "}",
		  towers, 2, NULL },
		{ "{\"vocab_size\":100,\"hidden_size\":16,\"num_hidden_layers\":2}", llm, 3, NULL },
		{ "{}", llm, 3, NULL },
		{ "{\"vocab_size\":99}", llm, 3, "vocab_size is 99, but model.embed_tokens.weight has 100 rows" },
		{ "{\"vocab_size\":100,\"hidden_size\":32}", llm, 3,
		  "hidden_size is 32, but model.embed_tokens.weight has 16 columns" },
		{ "{\"hidden_size\":32,\"embedding_size\":16}", llm, 3, NULL },
		{ "{\"n_layer\":3}", llm, 3, "num_hidden_layers is 3, but model has 2 layers" },
		{ "{\"num_hidden_layers\":1}", llm, 3, "num_hidden_layers is 1, but model has 2 layers" },
		{ "{\"num_hidden_layers\":1,\"num_nextn_predict_layers\":1}", llm, 3, NULL },
		{ "{\"model_type\":\"mllama_text_model\",\"vocab_size\":92}", llm, 3, NULL },
		{ "{\"text_config\":{\"vocab_size\":100,\"num_hidden_layers\":2}}", vlm, 3, NULL },
		{ "{\"text_config\":{\"num_hidden_layers\":4}}", vlm, 3,
		  "num_hidden_layers is 4, but model.language_model has 2 layers" },
		{ "{\"num_layers\":4}", two_stacks, 2, NULL },
		{ "{\"vocab_size\":7,\"hidden_size\":7}", two_embeddings, 2, NULL },
		{ "{\"vocab_size\":7,\"num_hidden_layers\":32}", adapter, 1, NULL },
		{ "{\"num_hidden_layers\":1}", experts, 1, NULL },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_err err = { 0 };
		int code = check(cases[i].json, cases[i].v, cases[i].n, &err);

		if (cases[i].why)
			assert_string_equal(err.text, cases[i].why);
		assert_int_equal(code, cases[i].why ? -EBADMSG : 0);
	}
}

/* -- dtype -- */

static void rewrites_dtype(void **state)
{
	static const struct {
		const char *in, *want;
	} cases[] = {
		{ "{\n  \"dtype\": \"float32\",\n  \"x\": 1.50\n}\n",
		  "{\n  \"dtype\": \"bfloat16\",\n  \"x\": 1.50\n}\n" },
		{ "{\"torch_dtype\":null,\"x\":1}", "{\"torch_dtype\":\"bfloat16\",\"x\":1}" },
		{ "{\"torch_dtype\" : \"float16\",\"dtype\":\"float16\"}",
		  "{\"torch_dtype\" : \"bfloat16\",\"dtype\":\"bfloat16\"}" },
		/* nested configs, and nothing but those */
		{ "{\"dtype\":\"a\",\"text_config\":{\"dtype\":\"b\",\"x_config\":{\"torch_dtype\":"
		  "\"c\"}},\"other\":{\"dtype\":\"keep\",\"y_config\":{\"dtype\":\"keep\"}}}",
		  "{\"dtype\":\"bfloat16\",\"text_config\":{\"dtype\":\"bfloat16\",\"x_config\":{"
		  "\"torch_dtype\":\"bfloat16\"}},\"other\":{\"dtype\":\"keep\",\"y_config\":{"
		  "\"dtype\":\"keep\"}}}" },
		{ "{\"dtype\":\"a\",\"quantization_config\":{\"dtype\":\"int8\"}}",
		  "{\"dtype\":\"bfloat16\",\"quantization_config\":{\"dtype\":\"int8\"}}" },
		{ "{\"dtype\":\"a\",\"l\":[{\"dtype\":\"keep\"},\"dtype\",\"}\"]}",
		  "{\"dtype\":\"bfloat16\",\"l\":[{\"dtype\":\"keep\"},\"dtype\",\"}\"]}" },
		/* strings that look like keys or brackets */
		{ "{\"a\":\"dtype\",\"b\":\"\\\"}{\\\\\",\"dtype\":\"f\"}",
		  "{\"a\":\"dtype\",\"b\":\"\\\"}{\\\\\",\"dtype\":\"bfloat16\"}" },
		/* a type per sub-model, or a token id, stays */
		{ "{\"dtype\":{\"text_config\":\"f\"},\"torch_dtype\":7}",
		  "{\"dtype\":{\"text_config\":\"f\"},\"torch_dtype\":7}" },
		/* absent at the top: both spellings, in the file's own layout */
		{ "{\n    \"x\": 1\n}\n",
		  "{\n    \"dtype\": \"bfloat16\",\n    \"torch_dtype\": \"bfloat16\",\n    \"x\": "
		  "1\n}\n" },
		{ "{\"x\":{\"dtype\":\"keep\"},\"text_config\":{\"dtype\":\"b\"}}",
		  "{\"dtype\": \"bfloat16\",\"torch_dtype\": \"bfloat16\",\"x\":{\"dtype\":"
		  "\"keep\"},\"text_config\":{\"dtype\":\"bfloat16\"}}" },
		{ "{}", "{\"dtype\": \"bfloat16\",\"torch_dtype\": \"bfloat16\"}" },
		{ " { } ", " { \"dtype\": \"bfloat16\", \"torch_dtype\": \"bfloat16\"} " },
		{ "{\"x\":NaN}", "{\"dtype\": \"bfloat16\",\"torch_dtype\": \"bfloat16\",\"x\":NaN}" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_span out;
		struct uns_err err = { 0 };

		assert_int_equal(uns_config_with_dtype(span(cases[i].in), "bfloat16", &arena, &out, &err), 0);
		assert_string_equal((const char *)out.p, cases[i].want);
		assert_int_equal(uns_span_left(&out), strlen(cases[i].want));
		uns_arena_fini(&arena);
	}
}

static void refuses_deep_config(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct uns_span out;
	char text[512] = "{\"a\":";
	size_t n = strlen(text);

	(void)state;
	memset(text + n, '[', 80);
	memset(text + n + 80, ']', 80);
	strcpy(text + n + 160, "}");
	assert_int_equal(uns_config_with_dtype(span(text), "float16", &arena, &out, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "nested deeper"));
	uns_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ties),   cmocka_unit_test(reads_facts),    cmocka_unit_test(refuses),
		cmocka_unit_test(checks), cmocka_unit_test(rewrites_dtype), cmocka_unit_test(refuses_deep_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
