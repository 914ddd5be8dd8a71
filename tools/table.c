/* See table.h. */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

struct cell {
	char *text;
	enum colour colour;
};

/* A last column of fewer columns is not wrapped. */
enum { ENOUGH = 24, GAP = 2 };

void table_add(struct table *t, const char *text)
{
	table_add_coloured(t, text, COLOUR_NONE);
}

void table_add_coloured(struct table *t, const char *text, enum colour colour)
{
	size_t cap = t->cap ? 2 * t->cap : 64;
	struct cell *grown = t->cell;

	if (t->n_cells == t->cap) {
		grown = realloc(t->cell, cap * sizeof(*grown));
		if (!grown) {
			command_no_memory();
			return;
		}
		t->cell = grown;
		t->cap = cap;
	}
	t->cell[t->n_cells] = (struct cell){ strdup(text), colour };
	if (t->cell[t->n_cells].text)
		t->n_cells++;
	else
		command_no_memory();
}

static size_t column_width(const struct table *t, size_t column)
{
	size_t i, w, widest = 0;

	for (i = column; i < t->n_cells; i += t->n_columns) {
		w = terminal_columns(t->cell[i].text);
		widest = w > widest ? w : widest;
	}
	return widest;
}

static void pad(size_t n)
{
	printf("%*s", (int)n, "");
}

static void cell_print(const struct table *t, size_t i, size_t widest, size_t width, size_t at)
{
	const struct cell *c = &t->cell[i];
	const size_t columns = terminal_columns(c->text), column = i % t->n_columns;
	const bool last = column + 1 == t->n_columns, right = t->right >> column & 1;

	if (right)
		pad(widest - columns);
	fputs(terminal_colour(stdout, c->colour), stdout);
	terminal_wrap(stdout, c->text, last && width >= at + ENOUGH ? width : 0, at, at);
	fputs(terminal_plain(stdout, c->colour), stdout);
	if (!last)
		pad(GAP + (right ? 0 : widest - columns));
}

static void print_rows(const struct table *t, const size_t *widest, const char *indent)
{
	const size_t width = terminal_width(stdout);
	size_t i, column, at = 0;

	for (i = 0; i < t->n_cells; i++) {
		column = i % t->n_columns;
		if (!column) {
			fputs(indent, stdout);
			at = strlen(indent);
		}
		cell_print(t, i, widest[column], width, at);
		at += widest[column] + GAP;
		if (column + 1 == t->n_columns)
			putchar('\n');
	}
}

void table_print(const struct table *t, const char *indent)
{
	size_t *widest = calloc(t->n_columns, sizeof(*widest)), column;

	if (!widest)
		command_no_memory();
	for (column = 0; widest && column < t->n_columns; column++)
		widest[column] = column_width(t, column);
	if (!command_lacks_memory())
		print_rows(t, widest, indent);
	free(widest);
}

void table_fini(struct table *t)
{
	while (t->n_cells)
		free(t->cell[--t->n_cells].text);
	free(t->cell);
}
