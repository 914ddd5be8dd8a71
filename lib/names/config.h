/* config.json: what it records of a model, and the same text with another dtype. Pure. */
#ifndef UNS_NAMES_CONFIG_H
#define UNS_NAMES_CONFIG_H

#include "base/arena.h"
#include "names/config_layers.h"

struct uns_config_info {
	const char *model_type; /* NULL when absent */
	const char *text_type;  /* of the text model inside; NULL when absent */
	bool is_diffusers;      /* "_class_name" in place of a model_type: a model of diffusers */
	bool ties_embeddings;   /* explicitly, or by the family's default where the key is absent */
	bool renamed_on_save;   /* transformers publishes this family under other tensor names */
	const char *auto_map_files[16]; /* "modeling_x.py", from auto_map */
	size_t n_auto_map_files;
	int64_t transformers; /* the major version of transformers that wrote it; 0 = not recorded */
	int64_t vocab_size, hidden_size, num_hidden_layers; /* of the text model; UNS_UNKNOWN = not in config.json */
	struct uns_config_layers layers; /* of the text model */
	bool padded_vocab; /* the family's embedding may have more rows than vocab_size */
	bool extra_layers; /* the family may have more layers than num_hidden_layers (multi-token prediction) */
};

/* The object of config.json that describes the text model: `root` itself, or one inside it. */
const cJSON *uns_config_text(const cJSON *root);

int uns_config_parse(struct uns_span json, struct uns_arena *arena, struct uns_config_info *out, struct uns_err *err);

/* Compares vocabulary, hidden size, number of layers, heads, their size, intermediate size and experts with the WEIGHT
 * tensors, where both are known. Heads of another number and size whose product is equal fit. Returns 0, or
 * -EBADMSG with "vocab_size is 32000 but model.embed_tokens.weight has 32064 rows". */
int uns_config_check(const struct uns_config_info *info, const struct uns_catalog *cat, struct uns_err *err);

/* What loaders of such a model look for, without ".safetensors". */
const char *uns_config_stem(const struct uns_config_info *info);

/* The call that loads a directory of such a model, with "%s" in place of its path. */
const char *uns_config_loader(const struct uns_config_info *info);

/* The same JSON text with another dtype ("bfloat16") as the value of every "dtype" and "torch_dtype", nested configs
 * included. If neither key exists, "dtype" is added at the top. All other bytes are kept. */
int uns_config_with_dtype(struct uns_span json, const char *torch_dtype, struct uns_arena *arena, struct uns_span *out,
			  struct uns_err *err);

#endif
