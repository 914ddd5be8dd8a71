/* How the names and shapes that transformers publishes follow from those in memory, as data: one row per family of
 * models. Written by tests/names/generate.py; read by published_names.c and, backwards, memory_names.c. */
#ifndef UNS_NAMES_PUBLISHED_TABLE_H
#define UNS_NAMES_PUBLISHED_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* A list of rules ends with from == NULL. */
struct uns_name_rule {
	/* A head replaces the beginning of a name ("model.visual."), or the whole name if `from` does not end with a
	 * dot. A tail replaces whole components at the end; '#' in `to` is the number of the expert. */
	const char *from, *to;
	/* Of a tail: the tensor is cut along its first dimension into the experts (unstack). Each expert, or the
	 * tensor itself, is cut into `of` equal shares of rows; this rule makes share number `part`, from 0. */
	unsigned part, of;
	bool unstack;
};

struct uns_name_family {
	const char *model_type;
	/* The first head that fits is applied, then all tails that fit. `new_head`: the heads of a model that was
	 * never loaded from published files. */
	const struct uns_name_rule *head, *new_head, *tail;
	/* Ends, as of a tail, of the names of tensors [experts, rows, columns] that a file may also have as [experts,
	 * columns, rows]: from_pretrained finds from the shape which it is. The last is NULL. */
	const char *transposed[3];
};

extern const char uns_published_source[]; /* "transformers 5.23.0" */
extern const struct uns_name_family uns_published_table[]; /* sorted by model_type (strcmp) */
extern const size_t uns_n_published_table;

#endif
