/* What a language model has before its first and behind its last layer, by family. A causal language model has
 * "lm_head.weight" too, unless config.json ties it to the embedding. */
#ifndef UNS_WHOLE_MODEL_ENDS_H
#define UNS_WHOLE_MODEL_ENDS_H

struct uns_model_ends {
	const char *stack; /* what the last component of the stack of layers is called */
	const char *embedding, *norm; /* beside that stack */
};

/* NULL for other and unknown families. NULL-safe. */
const struct uns_model_ends *uns_model_ends_of(const char *model_type);

#endif
