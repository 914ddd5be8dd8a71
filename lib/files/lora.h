/* What follows from names and shapes of an adapter's tensors about the LoraConfig that it was trained with. Pure. */
#ifndef UNS_FILES_LORA_H
#define UNS_FILES_LORA_H

#include "base/map.h"
#include "files/adapter_list.h"

struct uns_lora {
	/* Name of each adapted module in the base model -> its rank (uns_map_index), in the catalog's order. */
	struct uns_map modules;
	struct uns_map saved; /* modules that were trained as a whole -> themselves */
	uint32_t r; /* the rank of most modules */
	bool dora, lora_bias;
	const char *bias; /* PEFT's word: which of the base model's biases were trained */
	/* A tensor that is no LoRA's, or from which the config does not follow; NULL = there is none. */
	const char *unlike;
};

/* Reads one adapter of the catalog. Names are in the arena. Call uns_lora_fini whatever this returned. Fails only if
 * memory is out. */
int uns_lora_read(const struct uns_catalog *cat, const struct uns_one_adapter *adapter, struct uns_arena *arena,
		  struct uns_lora *out, struct uns_err *err);
void uns_lora_fini(struct uns_lora *lora);

#endif
