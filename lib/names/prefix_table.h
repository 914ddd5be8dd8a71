/* How models of a family name their tensors, bare and inside a model with a head. prefix_table.c is generated. */
#ifndef UNS_NAMES_PREFIX_TABLE_H
#define UNS_NAMES_PREFIX_TABLE_H

#include <stddef.h>

struct uns_prefix_row {
	const char *model_type;
	const char *prefix;    /* base_model_prefix: "bert" */
	const char *embedding; /* in the bare model: "embeddings.word_embeddings.weight" */
	const char *stack; /* what is before the number of a layer in the bare model: "encoder.layer."; "" = none */
};

extern const struct uns_prefix_row uns_prefix_table[]; /* sorted by model_type */
extern const size_t uns_prefix_table_n;

#endif
