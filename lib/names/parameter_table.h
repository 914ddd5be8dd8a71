/* In which order a model registers its parameters, as data: that is the order in which torch numbers them in an
 * optimizer. One row per family of models. Written by tests/names/orders.py; read by parameter_order.c. */
#ifndef UNS_NAMES_PARAMETER_TABLE_H
#define UNS_NAMES_PARAMETER_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum uns_parameter_kind {
	UNS_PARAMETER_DECAYS, /* a Trainer gives it weight decay */
	UNS_PARAMETER_PLAIN,  /* a Trainer gives it none */
	UNS_PARAMETER_BUFFER, /* no parameter: it has no number */
};

struct uns_parameter_row {
	const char *name; /* '*' is the number of a layer, of an expert or of a module in a list */
	enum uns_parameter_kind kind;
};

/* One parameter with two names, where the config ties embeddings: the second one has no number. */
struct uns_parameter_tie {
	const char *second, *first;
};

struct uns_parameter_family {
	const char *model_type;
	const struct uns_parameter_row *row; /* in order; the last has no name */
	const struct uns_parameter_tie *tie; /* the last has no names */
};

extern const char uns_parameter_source[]; /* "transformers 5.23.0" */
extern const struct uns_parameter_family uns_parameter_table[]; /* sorted by model_type (strcmp) */
extern const size_t uns_n_parameter_table;

#endif
