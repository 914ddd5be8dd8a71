/* A LoRA, or DoRA, that Megatron-Bridge trained and saved as a torch_dist checkpoint, as PEFT's: one module for each
 * published weight. Pure. */
#ifndef UNS_MEGATRON_LORA_H
#define UNS_MEGATRON_LORA_H

#include "files/other_lora.h"
#include "names/config.h"

struct uns_megatron_lora {
	const struct uns_catalog *catalog; /* of Megatron-Core; summary.adapter is OTHER */
	const struct uns_config_info *info;
	struct uns_span config; /* config.json's text; empty = none was found */
	int64_t expert_ranks; /* between how many the experts were divided; 0 = no file records it */
};

/* Tensors and names live in the arena. Fails with the finding OTHER_LORA if it cannot be converted exactly. */
int uns_megatron_lora_convert(const struct uns_megatron_lora *in, struct uns_arena *arena, struct uns_other_lora *out,
			      struct uns_err *err);

#endif
