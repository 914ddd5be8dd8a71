/* The families. Source: transformers 5.23.0, what save_pretrained writes of tiny models of all its causal and
 * image-text models; tests/e2e/test_whole.py compares. A family is listed if all its models have both tensors. */
#include "whole/model_ends.h"

#include <stddef.h>

#include "names/config_families.h"

/* Each list is sorted by strcmp. */
/* clang-format off */
static const char *const plain[] = {
	"afmoe", "apertus", "arcee", "aria_text", "axk1", "axk2", "beam", "bitnet", "cohere", "cohere2", "cohere2_moe",
	"cosmos3_edge_text", "cwm", "deepseek_v2", "deepseek_v3", "deepseek_v32", "diffllama", "doge", "dots1",
	"ernie4_5", "ernie4_5_moe", "evolla", "exaone4", "exaone_moe", "flex_olmo", "flint", "gemma", "gemma2",
	"gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "glm4v_text", "glm_image_text",
	"glm_moe_dsa", "glm_ocr_text", "gpt_oss", "granite", "granite_docling_text", "granite_swa", "granitemoe",
	"granitemoe_swa", "granitemoeshared", "helium", "higgs_audio_v2", "hunyuan_v1_moe", "hy_v3", "hy_v4",
	"hyperclovax", "idefics", "internlm3", "iquestcoder", "jais2", "jetmoe", "kimi_linear", "kolibri1", "laguna",
	"llama", "llama4_text", "longcat_flash", "mellum", "mimo_v2_flash", "minicpm3", "minimax", "minimax_m2",
	"minimax_m3_vl_text", "ministral3", "mistral", "mistral4", "mixtral", "mllama_text_model", "moshi",
	"muse_glimmer_text", "muse_spark_text", "olmo2", "olmo3", "olmo_hybrid", "olmoe", "paddleocr_vl_text", "phi3",
	"phi4_multimodal", "phimoe", "qwen2", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text",
	"qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_omni_moe_text",
	"qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2", "step3p5",
	"unlimited_ocr_text", "vaultgemma", "voxtral_realtime_text", "youtu",
};

static const char *const final_layernorm[] = {
	"falcon_h1", "jamba", "persimmon", "phi", "zamba", "zamba2",
};

static const char *const wte[] = {
	"codegen", "gpt2", "gpt_bigcode", "gptj",
};

static const char *const word_embeddings[] = {
	"bloom", "falcon",
};

static const char *const mamba[] = {
	"falcon_mamba", "mamba",
};

static const char *const lfm[] = {
	"lfm2", "lfm2_moe", "lfm3",
};
/* clang-format on */

#define ROW(list, stack, embedding, norm)               \
	{                                               \
		list, sizeof(list) / sizeof((list)[0]), \
		{                                       \
			stack, embedding, norm          \
		}                                       \
	}

static const struct {
	const char *const *model_type;
	size_t n;
	struct uns_model_ends ends;
} rows[] = {
	ROW(plain, "layers", "embed_tokens.weight", "norm.weight"),
	ROW(final_layernorm, "layers", "embed_tokens.weight", "final_layernorm.weight"),
	ROW(wte, "h", "wte.weight", "ln_f.weight"),
	ROW(word_embeddings, "h", "word_embeddings.weight", "ln_f.weight"),
	ROW(mamba, "layers", "embeddings.weight", "norm_f.weight"),
	ROW(lfm, "layers", "embed_tokens.weight", "embedding_norm.weight"),
};

const struct uns_model_ends *uns_model_ends_of(const char *model_type)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (uns_family_row(rows[i].model_type, rows[i].n, sizeof(*rows[i].model_type), model_type))
			return &rows[i].ends;
	return NULL;
}
