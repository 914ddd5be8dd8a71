/* PEFT: which tensors of a model are an adapter's, and what PEFT calls them in its files. In memory a name holds
 * the adapter's own ("lora_A.default.weight"), in a file it does not ("lora_A.weight"). A catalog has the names in
 * memory, which the optimizer and universal checkpoints have too. Pure. */
#ifndef UNS_FILES_ADAPTER_H
#define UNS_FILES_ADAPTER_H

#include "model/catalog.h"

/* Set summary.adapter and each tensor's of_adapter, and give weights that were saved under their names in PEFT's files
 * the names in memory that the optimizer has for them. For formats: last, before the catalog is sealed. */
int uns_adapter_find(struct uns_catalog *cat, struct uns_err *err);

/* The name in PEFT's files of an adapter's tensor; one that is so already stays. In the arena; NULL = out of memory. */
const char *uns_adapter_name(struct uns_arena *arena, const char *name);

/* Which of a model's adapters the tensor belongs to, as a range of `name`; *len = 0: its name does not tell. */
const char *uns_adapter_of(const char *name, size_t *len);

/* The tensor is one of the model that a catalog's adapters are put on. */
bool uns_adapter_is_base(const struct uns_tensor *t);
/* In what PEFT wrapped that model: the beginning of its tensors' names. */
const char *uns_adapter_wrapper(const struct uns_catalog *cat);
/* The tensor's name in that model, by its name in memory. In the arena; NULL = out of memory. */
const char *uns_adapter_base_name(struct uns_arena *arena, const char *wrapper, const char *name);

#endif
