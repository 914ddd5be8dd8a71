/* A LoRA that another program than PEFT trained, as PEFT's: its names, and the order of its rows. Pure. */
#ifndef UNS_FILES_OTHER_LORA_H
#define UNS_FILES_OTHER_LORA_H

#include "model/tree.h"

/* The tensors under their names in PEFT's files. */
struct uns_other_lora {
	const struct uns_named_tensor *v; /* n */
	size_t n;
};

/* The program that calls a LoRA's matrix so ("torchtune"); NULL = none that is known. */
const char *uns_other_lora_program(const char *name);

/* Sets summary.adapter of a catalog in which PEFT has no adapter, if another program has. */
void uns_other_lora_find(struct uns_catalog *cat);
/* Is the tensor the adapter's in a catalog whose summary.adapter is OTHER? */
bool uns_other_lora_has(const struct uns_tensor *t);
/* Fails with the finding OTHER_LORA: of a tensor of the adapter, why it cannot be converted. */
int uns_other_lora_refuse(const struct uns_catalog *cat, const struct uns_tensor *t, const char *why,
			  struct uns_err *err);

/* config: the bytes of the adapted model's config.json, which decide the order of rows; empty = none was found.
 * Tensors and names live in the arena. Fails with the finding OTHER_LORA if it cannot be converted exactly.
 * cat: summary.adapter is OTHER. That of a torch_dist checkpoint: see megatron/lora.h. */
int uns_other_lora_convert(const struct uns_catalog *cat, struct uns_span config, struct uns_arena *arena,
			   struct uns_other_lora *out, struct uns_err *err);

#endif
