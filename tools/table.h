/* Rows of cells, printed with columns as wide as their widest cell. Without memory for a cell nothing is printed, and
 * the command fails (command_no_memory). */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <stddef.h>

#include "terminal.h"

struct table {
	size_t n_columns, n_cells, cap;
	unsigned right; /* a bit for each column of numbers, which end below each other */
	struct cell *cell;
};

void table_add(struct table *t, const char *cell);
/* A word that catches the eye. */
void table_add_coloured(struct table *t, const char *cell, enum colour colour);
/* The last column may be wrapped to the terminal. */
void table_print(const struct table *t, const char *indent);
void table_fini(struct table *t);

#endif
