/* How the names and shapes that transformers publishes follow from those that it holds in memory, as data: one
 * family of models a row. Written by tests/names/generate.py; read by published_names.c alone. */
#ifndef UNS_FILES_PUBLISHED_TABLE_H
#define UNS_FILES_PUBLISHED_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Of a list that ends with from == NULL. */
struct uns_name_rule {
	/* A head replaces the beginning of a name ("model.visual."), or all of it where `from` does not end with
	 * a dot. A tail replaces whole components at its end; '#' in `to` is the number of the expert. */
	const char *from, *to;
	/* Of a tail: the tensor is cut along its first dimension into the experts (unstack), and each of these, or
	 * the tensor itself, into `of` equal parts of rows, of which this is the part-th. */
	unsigned part, of;
	bool unstack;
};

struct uns_name_family {
	const char *model_type;
	/* One head is applied (the first that fits), then all tails that fit. `new_head`: what a model that was
	 * never loaded from published files is saved with. */
	const struct uns_name_rule *head, *new_head, *tail;
};

extern const char uns_published_source[]; /* "transformers 5.23.0" */
extern const struct uns_name_family uns_published_table[]; /* sorted by model_type (strcmp) */
extern const size_t uns_n_published_table;

#endif
