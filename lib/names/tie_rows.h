/* The rows of tie_table.c that are of one family. */
#ifndef UNS_NAMES_TIE_ROWS_H
#define UNS_NAMES_TIE_ROWS_H

#include <stdbool.h>

#include "names/tie_table.h"

struct uns_tie_rows {
	const struct uns_tie_row *v;
	size_t n;
};

/* n = 0: the family is not known, or has none. NULL-safe. */
struct uns_tie_rows uns_tie_rows_of(const char *model_type);

/* Is it a tensor that the family's models compute, and that save_pretrained leaves out? */
bool uns_tie_rows_computed(struct uns_tie_rows rows, const char *name);

#endif
