/* The model families. Owns nothing else; config.c asks.
 *
 * Source: transformers 5.23.0. TIES: the attribute of each configuration class of CONFIG_MAPPING built without
 * arguments (PreTrainedConfig itself has no default, and modeling_utils.py reads getattr(config, "tie_word_embeddings",
 * False)); release 4 omits the key exactly for these families. LIFTS: the same classes given {"text_config":
 * {"tie_word_embeddings": true}}. RENAMED: the families of which save_pretrained gives a model, or a part of it,
 * other names than it has in memory (tests/names/renames.py writes the list). */
#include "names/config_families.h"

#include <stdlib.h>
#include <string.h>

/* Each list is sorted by strcmp. */
/* clang-format off */
static const char *const ties[] = {
	"albert", "aya_vision", "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt",
	"blenderbot", "blenderbot-small", "blip", "blip_text_model", "bloom", "camembert", "canary", "cohere",
	"cohere2", "cohere2_moe", "cohere2_vision", "cohere_compass_text", "convbert", "cpmant", "csm", "ctrl",
	"d_fine", "dab-detr", "data2vec-text", "deberta", "deberta-v2", "deepseek_vl", "deepseek_vl_hybrid",
	"deformable_detr", "deimv2", "diffusion_gemma", "diffusion_gemma_text", "distilbert", "electra", "ernie",
	"ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text", "esm", "falcon", "falcon_mamba",
	"flaubert", "flava", "florence2", "fnet", "fun_asr_nano", "funnel", "gemma", "gemma2", "gemma3",
	"gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_assistant", "gemma4_text", "gemma4_unified",
	"gemma4_unified_assistant", "gemma4_unified_text", "glmasr", "got_ocr2", "gpt-sw3", "gpt2", "gpt_bigcode",
	"gpt_neo", "gpt_neox_japanese", "granite_docling", "granite_docling_text", "granite_speech",
	"granite_speech5_ctc", "granite_speech_plus", "granite_swa", "grounding-dino", "gte", "hunyuan_vl",
	"hunyuan_vl_text", "hyperclovax_vision_v2", "ibert", "internvl", "janus", "jetmoe", "jina_embeddings_v3",
	"kimi_k25", "kosmos-2", "kosmos-2.5", "kosmos_2_5_text_model", "kosmos_2_text_model", "layoutlm", "led",
	"lfm2", "lfm2_moe", "lfm2_vl", "lfm3", "lfm3_vl", "lighton_ocr", "longformer", "longt5", "luke", "lxmert",
	"m2m_100", "mamba", "marian", "mbart", "megatron-bert", "mimi", "mimi_decoder", "mimi_encoder", "minicpm3",
	"minicpm_ocr", "mistral3", "mm-grounding-dino", "mobilebert", "modernbert", "modernbert-decoder", "moonshine",
	"moss_transcribe_diarize", "mpnet", "mpt", "mra", "mt5", "mvp", "neomme", "nllb-moe", "nomic_bert",
	"nystromformer", "openai-gpt", "opt", "ovis2", "paddleocr_vl", "paddleocr_vl_text", "paligemma",
	"pe_audio_video", "pegasus", "pegasus_x", "plbart", "pop2piano", "pp_chart2table", "pp_doclayout_v3",
	"pp_doclayout_v4", "prophetnet", "qwen2_5_omni_text", "qwen3_asr", "qwen3_vl_moe_text", "recurrent_gemma",
	"roberta", "roberta-prelayernorm", "roc_bert", "roformer", "rt_detr_v2", "sam", "sam_hq", "seamless_m4t",
	"seamless_m4t_v2", "shieldgemma2", "smollm3", "speech_to_text", "speecht5", "squeezebert", "starcoder2",
	"switch_transformers", "t5", "t5_gemma_module", "t5gemma", "t5gemma2", "t5gemma2_decoder", "t5gemma2_encoder",
	"t5gemma2_text", "tapas", "trocr", "udop", "umt5", "vaultgemma", "vilt", "visual_bert", "voxtral_realtime",
	"whisper", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod", "yoso", "youtu", "zamba",
	"zamba2", "zaya",
};

static const char *const lifts[] = {
	"perception_lm",
};

static const char *const lifts_over[] = {
	"fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "hunyuan_vl", "llava", "llava_next_video", "llava_onevision",
	"minimax_m3_vl", "paddleocr_vl", "qwen2_5_vl", "qwen2_vl", "shieldgemma2", "vibevoice", "video_llama_3",
};

static const char *const renamed[] = {
	"afmoe", "altclip", "aria", "aria_text", "audio-spectrogram-transformer", "audioflamingo3", "axk1", "axk2",
	"aya_vision", "bailing_hybrid", "beam", "beit", "chmv2", "cohere2_moe", "cohere_asr", "colpali",
	"conditional_detr", "cosmos3_edge", "cosmos3_omni", "csm", "d_fine", "deepseek_ocr2", "deepseek_v2",
	"deepseek_v3", "deepseek_v32", "deepseek_v4", "deformable_detr", "deit", "depth_anything", "depth_pro",
	"detr", "dinov2", "dinov2_with_registers", "dinov3_convnext", "dinov3_vit", "dots1", "dots3_note",
	"dots3_note_audio_encoder", "dots3_note_text", "dots3_note_vision_encoder", "emu3", "ernie4_5_moe",
	"ernie4_5_vl_moe", "esm", "exaone_moe", "flex_olmo", "flint", "fuyu", "gemma3", "gemma4_unified", "glm4_moe",
	"glm4_moe_lite", "glm4v_moe", "glm5_next", "glm5_next_text", "glm_moe_dsa", "glmasr", "got_ocr2", "gpt_neox",
	"gradium_phonon_tts", "granite_speech", "granite_speech_plus", "granitemoe", "granitemoehybrid",
	"granitemoeshared", "grounding-dino", "gte", "hrm_text", "hunyuan_v1_moe", "hunyuan_vl", "hy_v3", "hy_v4",
	"hyperclovax_vision_v2", "ijepa", "inkling2", "inkling2_text", "inkling_mm_model", "internvl", "jamba", "jev",
	"jina_embeddings_v3", "kimi_k25", "kimi_linear", "kolibri1", "kyutai_speech_to_text", "laguna", "lfm2_moe",
	"lfm3", "lfm3_vl", "lfm3_vl_vision", "llava", "llava_next", "llava_next_video", "llava_onevision",
	"longcat_flash", "lw_detr", "mask2former", "maskformer", "mellum", "mimi", "mimi_decoder", "mimi_encoder",
	"mimo_v2_flash", "minimax", "minimax_m2", "minimax_m3_vl", "mistral3", "mistral_large4",
	"mistral_large4_text", "mixtral", "mllama", "mm-grounding-dino", "molmo2", "molmo2_text", "musicflamingo",
	"nemo_speechlm", "nemotron_h", "nemotron_h_omni", "nomic_bert", "olmo_hybrid", "olmoe", "oneformer",
	"paddleocr_vl", "paligemma", "phimoe", "pi0", "pixio", "pp_chart2table", "pp_doclayout_v2", "pp_doclayout_v3",
	"pp_doclayout_v4", "prompt_depth_anything", "qianfan_ocr", "qwen2_5_omni", "qwen2_5_omni_thinker",
	"qwen2_5_vl", "qwen2_audio", "qwen2_moe", "qwen2_vl", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_moe",
	"qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker", "qwen3_vl_moe", "qwen4_exp",
	"qwen4_exp_text", "radio", "rf_detr", "rt_detr", "rt_detr_v2", "sam3_tracker", "sam3_tracker_video",
	"sam3_video", "sapiens2", "segformer", "shieldgemma2", "solar_open", "step3p5_vision", "step3p7", "swin",
	"t5gemma2", "t5gemma2_encoder", "timesfm2_5", "tipsv2", "tipsv2_dpt", "tipsv2_text_model",
	"tipsv2_vision_model", "ultrabert", "ultravbert", "unlimited_ocr", "unlimited_ocr_sam_vision_model",
	"unlimited_ocr_text", "unlimited_ocr_vision", "unlimited_ocr_vision_encoder", "vibevoice_asr", "video_llava",
	"videomae", "vipllava", "vision-encoder-decoder", "vision-text-dual-encoder", "vit", "vit_mae", "vit_msn",
	"vivit", "voxtral", "voxtral_realtime", "yolos", "zoedepth",
};
/* clang-format on */

static int row_compare(const void *model_type, const void *row)
{
	return strcmp(model_type, *(const char *const *)row);
}

const void *uns_family_row(const void *table, size_t n, size_t size, const char *model_type)
{
	return model_type ? bsearch(model_type, table, n, size, row_compare) : NULL;
}

#define IS_IN(list)            (uns_family_row((list), sizeof(list) / sizeof((list)[0]), sizeof((list)[0]), model_type) != NULL)
#define FLAG_IF_IN(list, flag) (IS_IN(list) ? (flag) : 0)

unsigned uns_config_family(const char *model_type)
{
	return FLAG_IF_IN(ties, UNS_FAMILY_TIES) | FLAG_IF_IN(lifts, UNS_FAMILY_LIFTS) |
	       FLAG_IF_IN(lifts_over, UNS_FAMILY_LIFTS_OVER) | FLAG_IF_IN(renamed, UNS_FAMILY_RENAMED);
}
