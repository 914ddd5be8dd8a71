/* PEFT: which tensors of a model belong to an adapter, and their names in PEFT's files. A name in memory contains the
 * adapter's name ("lora_A.default.weight"), a name in a file does not ("lora_A.weight"). A catalog has the names in
 * memory, as the optimizer and universal checkpoints have. Pure. */
#ifndef UNS_FILES_ADAPTER_H
#define UNS_FILES_ADAPTER_H

#include "model/catalog.h"

/* Set summary.adapter and each tensor's of_adapter. Weights that were saved under their names in PEFT's files get the
 * names in memory, which the optimizer's states have. For formats: the last call before the catalog is sealed. */
int uns_adapter_find(struct uns_catalog *cat, struct uns_err *err);

/* Fails: why a catalog whose summary.adapter is NONE has none of PEFT's. */
int uns_adapter_absence(const struct uns_catalog *cat, struct uns_err *why);

/* The name that an adapter's tensor has in PEFT's files, also if `name` is that already. In the arena; NULL = out of
 * memory. */
const char *uns_adapter_name(struct uns_arena *arena, const char *name);

/* The name in memory of a tensor of this adapter, from that in PEFT's files; PEFT files under it what replaces a weight
 * as modules_to_save. In the arena; NULL = out of memory. */
const char *uns_adapter_name_in_memory(struct uns_arena *arena, const char *name, const char *adapter);

/* The adapter's name, as a range of the tensor's `name`; *len = 0 if the name does not contain it. */
const char *uns_adapter_of(const char *name, size_t *len);

/* The component of a name that a method of PEFT added ("lora_A.weight"), with all behind it; NULL = none. */
const char *uns_adapter_part(const char *name);

/* Does the tensor belong to the base model? */
bool uns_adapter_is_base(const struct uns_tensor *t);
/* The prefix that PEFT's wrapper adds to the names of the base model's tensors. */
const char *uns_adapter_wrapper(const struct uns_catalog *cat);
/* The tensor's name in the base model, from its name in memory. In the arena; NULL = out of memory. */
const char *uns_adapter_base_name(struct uns_arena *arena, const char *wrapper, const char *name);

#endif
