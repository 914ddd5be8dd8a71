/* megatron/described.c and names/tokenizer.c: what becomes of the fields of a config, and which are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "megatron/described.h"
#include "model/catalog.h"
#include "wire/json.h"

#define SILU "\"activation_func\":{\"_target_\":\"torch.nn.functional.silu\"},"
#define SIZES                                                                                            \
	"\"num_layers\":2,\"hidden_size\":16,\"num_attention_heads\":4,\"layernorm_epsilon\":1e-05,"     \
	"\"rotary_base\":500000,\"init_method_std\":0.02,\"share_embeddings_and_output_weights\":false," \
	"\"seq_length\":64,\"max_position_embeddings\":64"
#define NEMO(file, class) "{\"_target_\":\"nemo.collections.llm.gpt.model." file "." class "\","
#define BRIDGE(class)     "{\"_target_\":\"megatron.bridge.models." class "\","

/* clang-format off: a table, a case a row */
static const struct {
	const char *fields;
	const char *has; /* a part of config.json, or of the sentence */
	int code;
} rows[] = {
	/* What is null is what Megatron-Core takes then; floats stay floats. */
	{ NEMO("llama", "Llama3Config8B") SILU SIZES "}", "\"intermediate_size\":64", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES "}", "\"num_key_value_heads\":4", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"kv_channels\":null}", "\"head_dim\":4", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"vocab_size\":null}", "\"vocab_size\":37", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"vocab_size\":40}", "\"vocab_size\":40", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES "}", "\"rope_theta\":500000.0", 0 },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES "}", "\"bos_token_id\":35,\"eos_token_id\":null", 0 },
	{ NEMO("llama", "Llama32Config1B") SILU SIZES
	  ",\"scale_factor\":32,\"low_freq_factor\":1,\"high_freq_factor\":4.0,\"old_context_len\":8192}",
	  "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
	  "\"original_max_position_embeddings\":8192}",
	  0 },
	{ BRIDGE("llama.llama_provider.Llama31ModelProvider8B") SILU SIZES "}", "\"model_type\":\"llama\"", 0 },
	{ BRIDGE("qwen.qwen_provider.Qwen3MoEModelProvider") SILU SIZES
	  ",\"num_moe_experts\":4,\"moe_router_topk\":2,\"moe_aux_loss_coeff\":0.001,\"qk_layernorm\":true}",
	  "\"moe_intermediate_size\":64", 0 },
	{ NEMO("mistral", "MistralConfig7B") SILU SIZES ",\"window_size\":[4096,0]}", "\"sliding_window\":4096", 0 },
	{ NEMO("qwen2", "Qwen25Config7B") SILU SIZES ",\"add_qkv_bias\":true}", "\"model_type\":\"qwen2\"", 0 },
	/* Refused. */
	{ NEMO("qwen2", "Qwen25Config7B") SILU SIZES ",\"add_qkv_bias\":false}",
	  "add_qkv_bias is false, and in a model of type qwen2 it is true", -ENOTSUP },
	{ NEMO("llama", "Llama4Config") SILU SIZES "}",
	  "its class is nemo.collections.llm.gpt.model.llama.Llama4Config,", -ENOTSUP },
	{ BRIDGE("qwen.qwen_provider.Qwen3NextModelProvider") SILU SIZES "}", "its class is megatron.bridge",
	  -ENOTSUP },
	{ "{\"_target_\":\"mine.LlamaConfig\"," SILU SIZES "}", "its class is mine.LlamaConfig", -ENOTSUP },
	{ "{" SILU SIZES "}", "does not have the class", -ENOTSUP },
	{ "{\"_target_\":\"LlamaConfig\"," SILU SIZES "}", "its class is LlamaConfig", -ENOTSUP },
	{ NEMO("llama", "Llama3Config8B") SIZES "}", "it has no activation_func", -EBADMSG },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"rotary_percent\":0.5}", "rotary_percent is 0.5", -ENOTSUP },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"mtp_num_layers\":1}", "mtp_num_layers is 1", -ENOTSUP },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"multi_latent_attention\":true}",
	  "multi_latent_attention is true", -ENOTSUP },
	{ NEMO("llama", "Llama3Config8B") SILU SIZES ",\"kv_channels\":\"4\"}", "kv_channels is no number", -EBADMSG },
	{ NEMO("mixtral", "MixtralConfig8x7B") SILU SIZES ",\"num_moe_experts\":8,\"moe_layer_freq\":[0,1]}",
	  "moe_layer_freq is [0,1], and in a model of type mixtral it is 1", -ENOTSUP },
	{ NEMO("mixtral", "MixtralConfig8x7B") SILU SIZES "}", "of which unshard does not know", -ENOTSUP },
	{ NEMO("mistral", "MistralConfig7B") SILU SIZES ",\"window_size\":\"all\"}", "window_size is \"all\"",
	  -ENOTSUP },
	{ NEMO("gemma", "GemmaConfig2B") "\"activation_func\":{\"_target_\":\"nemo.openai_gelu\"}," SIZES
					 ",\"layernorm_zero_centered_gamma\":true}",
	  "share_embeddings_and_output_weights is false", -ENOTSUP },
	{ NEMO("gemma2", "Gemma2Config2B") SILU SIZES ",\"layernorm_zero_centered_gamma\":true}", "it is openai_gelu",
	  -ENOTSUP },
};
/* clang-format on */

static void fields(void **state)
{
	const struct uns_tokenizer tokens = { 37, 35, UNS_UNKNOWN };
	const char *type;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
		struct uns_span out = { 0 };
		struct uns_err err = { 0 };
		char *text;
		int code;

		assert_int_equal(uns_json_parse(uns_span_of(rows[i].fields, strlen(rows[i].fields)), &json, &err), 0);
		code = uns_megatron_describe(json, &tokens, "bfloat16", &arena, &type, &out, &err);
		if (code != rows[i].code)
			fail_msg("row %zu: %d, not %d: %s", i, code, rows[i].code, err.text);
		if (rows[i].code) {
			if (!strstr(err.text, rows[i].has))
				fail_msg("row %zu: \"%s\" has no \"%s\"", i, err.text, rows[i].has);
			continue;
		}
		assert_non_null(text = strdup((const char *)out.p));
		cJSON_Minify(text);
		if (!strstr(text, rows[i].has))
			fail_msg("row %zu: %s has no %s", i, text, rows[i].has);
		free(text);
	}
}

static void no_tokenizer(void **state)
{
	static const char fields_text[] = NEMO("llama", "Llama3Config8B") SILU SIZES "}";
	const struct uns_tokenizer tokens = { UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	struct uns_err err = { 0 };
	struct uns_span out;
	const char *type;

	(void)state;
	assert_int_equal(uns_json_parse(uns_span_of(fields_text, strlen(fields_text)), &json, &err), 0);
	assert_int_equal(uns_megatron_describe(json, &tokens, "float32", &arena, &type, &out, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "vocab_size is null"));
}

static void tokenizers(void **state)
{
	static const struct {
		const char *tokenizer, *config;
		int64_t n, bos, eos;
		int code;
	} cases[] = {
		{ "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2}},\"added_tokens\":[{\"id\":2,\"content\":\"<s>\"},"
		  "{\"id\":3,\"content\":\"</s>\"}]}",
		  "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}", 4, 2, 3, 0 },
		{ "{\"model\":{\"vocab\":[[\"a\",-1.5],[\"b\",-2]]},\"added_tokens\":[]}", "{\"bos_token\":\"a\"}", 2,
		  UNS_UNKNOWN, UNS_UNKNOWN, 0 },
		{ "{\"model\":{}}", "", UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN, 0 },
		{ "", "{\"bos_token\":\"a\"}", UNS_UNKNOWN, UNS_UNKNOWN, UNS_UNKNOWN, 0 },
		{ "{\"model\":{\"vocab\":[3]}}", "", 0, 0, 0, -EBADMSG },
		{ "{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":1}]}", "", 0, 0, 0, -EBADMSG },
		{ "[", "", 0, 0, 0, -EBADMSG },
		{ "{\"model\":{\"vocab\":{\"a\":0}}}", "{", 0, 0, 0, -EBADMSG },
	};
	struct uns_tokenizer got;
	struct uns_err err;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		err = (struct uns_err){ 0 };
		assert_int_equal(uns_tokenizer_read(uns_span_of(cases[i].tokenizer, strlen(cases[i].tokenizer)),
						    uns_span_of(cases[i].config, strlen(cases[i].config)), &got, &err),
				 cases[i].code);
		if (cases[i].code)
			continue;
		assert_int_equal(got.n_tokens, cases[i].n);
		assert_int_equal(got.bos, cases[i].bos);
		assert_int_equal(got.eos, cases[i].eos);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields),
		cmocka_unit_test(no_tokenizer),
		cmocka_unit_test(tokenizers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
