/* Which tensors of a family save_pretrained leaves out, where suffixes do not show it. tie_table.c is generated. */
#ifndef UNS_NAMES_TIE_TABLE_H
#define UNS_NAMES_TIE_TABLE_H

#include <stddef.h>

struct uns_tie_row {
	const char *model_type;
	const char *second; /* left out; a model inside another one has the other one's prefix in front of both */
	const char
		*first; /* what it is tied to if the config ties embeddings; NULL = second is computed, not trained */
};

extern const struct uns_tie_row uns_tie_table[]; /* sorted by model_type */
extern const size_t uns_tie_table_n;

#endif
