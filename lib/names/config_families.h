/* The families of models for which transformers has a rule of its own: which tie their embeddings if config.json does
 * not have the key, and which publish other tensor names than they have in memory. */
#ifndef UNS_NAMES_CONFIG_FAMILIES_H
#define UNS_NAMES_CONFIG_FAMILIES_H

#include <stddef.h>

enum uns_family_flag {
	UNS_FAMILY_TIES = 1,       /* tie_word_embeddings absent means true (in other families: false) */
	UNS_FAMILY_LIFTS = 2,      /* absent at the top and true in text_config means true */
	UNS_FAMILY_LIFTS_OVER = 4, /* true in text_config means true, whatever the top has */
	UNS_FAMILY_RENAMED = 8,    /* names on disk differ from those in memory */
};

/* The row for a model_type in a table of n rows of `size` bytes, which is sorted (strcmp) by the first member of its
 * rows, a model_type; NULL = there is none. NULL-safe. O(log n). */
const void *uns_family_row(const void *table, size_t n, size_t size, const char *model_type);

/* Flags of a model_type; 0 for other and unknown families. O(log n). */
unsigned uns_config_family(const char *model_type);

#endif
