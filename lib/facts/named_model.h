/* The Hugging Face model that a training with Megatron-Core began from, by the files that its program leaves beside or
 * in the checkpoint. config.json and tokenizer are that model's.
 *
 *   run_config.yaml   Megatron-Bridge   model.hf_model_id, model.extra_checkpoint_metadata.hf_model_id (and
 *                                       hf_model_revision), checkpoint.hf_source_path
 *   args.json         ms-swift          model
 *   common.pt         slime             hf_checkpoint of the arguments
 *
 * Source: Megatron-Bridge 067f987, training/checkpointing.py (_resolve_hf_source), models/conversion/auto_bridge.py;
 * ms-swift 3602360, megatron/trainers/base.py; slime 624b824, utils/arguments.py. */
#ifndef UNS_FACTS_NAMED_MODEL_H
#define UNS_FACTS_NAMED_MODEL_H

#include "facts/adapted_model.h"
#include "model/catalog.h"

struct named_model {
	struct adapted_model model;
	const char *by; /* the file that names it */
};

/* A directory where such a file may be. */
struct named_model_place {
	const struct uns_root *root;
	const char *path;
};

/* The first that is named, in the order of `places`; then by common.pt. Without one, out->model.name is NULL. `out`
 * must be zeroed; close out->model.root whatever this returned. */
int named_model_find(const struct uns_catalog *cat, const struct named_model_place *places, size_t n_places,
		     struct uns_arena *arena, struct named_model *out, struct uns_err *err);

#endif
