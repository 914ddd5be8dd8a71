/* The training's own arguments, which Megatron-LM keeps in common.pt or in an item (megatron/fsdp.h), and whether a
 * config.json fits them. A model of the same shapes may have other heads: then queries, keys and values would be cut at
 * wrong rows. Source: megatron-core 0.16.1, megatron/training/arguments.py and checkpointing.py (args is an
 * argparse.Namespace). */
#ifndef UNS_MEGATRON_ARGS_H
#define UNS_MEGATRON_ARGS_H

#include "base/span.h"
#include "megatron/sizes.h"
#include "model/catalog.h"

/* Adds each argument that the comparison needs as a value below the root UNS_MEGATRON_COMMON: numbers, texts, and what
 * is switched on. `args` may be NULL. Values are copied into the catalog's arena. */
int uns_megatron_args_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *args, struct uns_err *err);

/* Adds how many steps the training had made, as the value UNS_MEGATRON_ITERATION below the same root. Nothing if `v` is
 * NULL or no whole number. */
int uns_megatron_iteration_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *v, struct uns_err *err);

/* The same of a common.pt that Lightning's state is in (NeMo 2), and its version as the value UNS_MEGATRON_LIGHTNING.
 */
int uns_megatron_lightning_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *root,
			       struct uns_err *err);

/* Compares what common.pt and config.json both record, but shapes do not prove. `config`: config.json's text, `sizes`
 * read from it; `adds_one`: models of this type multiply by their norms' weights plus one. Returns 0, or fails with
 * -EBADMSG and both numbers; with -ENOTSUP if the training did the other one of both with the stored norms. */
int uns_megatron_args_check(const struct uns_catalog *cat, struct uns_span config,
			    const struct uns_megatron_sizes *sizes, bool adds_one, struct uns_err *err);

#endif
