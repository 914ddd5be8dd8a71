/* config.json of a model, made from what the program that trained it wrote down: the fields of a config of
 * Megatron-Core that NeMo 2 (context/model.yaml, under "config") and Megatron-Bridge (run_config.yaml, under "model")
 * save with their class. Pure.
 *
 * Source: nemo_toolkit 2.5.3, nemo/collections/llm/gpt/model/ (the exporters' `config`, which field becomes which key;
 * the families' classes), lightning/io/mixin.py (how the file is written: the arguments of the config, with defaults,
 * before Megatron-Core fills in what is null); Megatron-Bridge 0.3.1, models/ (the same fields in classes that are
 * called
 * ...ModelProvider). */
#ifndef UNS_MEGATRON_DESCRIBED_H
#define UNS_MEGATRON_DESCRIBED_H

#include <cjson/cJSON.h>

#include "base/arena.h"
#include "names/tokenizer.h"

/* Makes the text of config.json. `fields`: the object with the class under "_target_". `dtype`: torch's name of the
 * weights' dtype. *model_type becomes the family's. Fails with -ENOTSUP if the class is of no family that is known
 * here, or a field has a value that no model of the family has in transformers: the sentence has the field, and what it
 * would have to be. -EBADMSG if a number is missing. The texts are in `arena`. */
int uns_megatron_describe(const cJSON *fields, const struct uns_tokenizer *tokens, const char *dtype,
			  struct uns_arena *arena, const char **model_type, struct uns_span *out, struct uns_err *err);

#endif
