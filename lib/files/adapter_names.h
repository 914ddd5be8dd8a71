/* PEFT adapters: are these tensors one, and what PEFT calls them on disk. Pure. */
#ifndef UNS_FILES_ADAPTER_NAMES_H
#define UNS_FILES_ADAPTER_NAMES_H

#include "model/catalog.h"

/* *out: the model tensors are LoRA tensors without the layers they adapt, so that they can only be
 * loaded as an adapter. -ENOMEM. */
int uns_adapter_is(const struct uns_catalog *cat, bool *out, struct uns_err *err);

/* The name on disk of an in-memory name: "base_model.model." in front, the adapter name "default"
 * and the wrapper "modules_to_save" dropped; names that are already so stay. In the arena; NULL =
 * out of memory. */
const char *uns_adapter_name(struct uns_arena *arena, const char *name);

/* A frozen original beside a trained copy (modules_to_save): not written by PEFT. */
bool uns_adapter_leaves_out(const char *name);

#endif
