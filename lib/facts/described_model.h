/* A config.json that is made from what the program of a training with Megatron-Core wrote of the model:
 *
 *   model.yaml        NeMo 2, in context/ beside the shards   "config"
 *   run_config.yaml   Megatron-Bridge, in the checkpoint      "model"
 *
 * What becomes of the fields is in megatron/described.h. */
#ifndef UNS_FACTS_DESCRIBED_MODEL_H
#define UNS_FACTS_DESCRIBED_MODEL_H

#include "io/listing.h"
#include "model/catalog.h"

#define DESCRIBED_FILES "model.yaml", "run_config.yaml"

struct described_input {
	const struct uns_root *root;
	const char *dir, *file;
	const struct uns_root *tokenizer_root; /* NULL = no tokenizer was found */
	const char *tokenizer_dir;
	const struct uns_catalog *cat; /* the weights */
};

struct described_model {
	const char *model_type;
	struct uns_span config; /* config.json's text */
};

/* The first of the files that the directory has; NULL = none. */
const char *described_model_file(const struct uns_listing *list);

/* Reads `file`, and the tokenizer's files. Texts are in `arena`. Fails with a sentence about the file if no config.json
 * follows from it. */
int described_model_read(const struct described_input *in, struct uns_arena *arena, struct described_model *out,
			 struct uns_err *err);

#endif
