/* Terminal columns are counted in characters, not bytes: names may be UTF-8. */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

void text_bytes(uint64_t bytes, char out[32])
{
	static const char *const unit[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double n = (double)bytes;
	size_t i = 0;

	while (n >= 999.95 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
		n /= 1000;
		i++;
	}
	snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", n, unit[i]);
}

void text_print(const char *s)
{
	for (; *s; s++)
		putchar((unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s);
}

char *path_shown(const char *source, const char *path)
{
	size_t n = strlen(source);
	char *shown;

	while (n > 1 && source[n - 1] == '/')
		n--;
	if (!*path)
		return strndup(source, n);
	if (asprintf(&shown, "%.*s%s%s", (int)n, source, source[n - 1] == '/' ? "" : "/", path) < 0)
		return NULL;
	return shown;
}

char *path_name(const char *path)
{
	char *real = realpath(path, NULL), *name = real ? strdup(strrchr(real, '/') + 1) : NULL;

	free(real);
	return name;
}

void table_add(struct table *t, const char *cell)
{
	size_t cap = t->cap ? 2 * t->cap : 64;
	char **grown = t->cell;

	if (t->n_cells == t->cap) {
		grown = realloc(t->cell, cap * sizeof(*grown));
		if (!grown) {
			command_no_memory();
			return;
		}
		t->cell = grown;
		t->cap = cap;
	}
	t->cell[t->n_cells] = strdup(cell);
	if (t->cell[t->n_cells])
		t->n_cells++;
	else
		command_no_memory();
}

static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static size_t column_width(const struct table *t, size_t column)
{
	size_t i, w, widest = 0;

	for (i = column; i < t->n_cells; i += t->n_columns) {
		w = width(t->cell[i]);
		widest = w > widest ? w : widest;
	}
	return widest;
}

void table_print(const struct table *t, const char *indent)
{
	size_t *widest = calloc(t->n_columns, sizeof(*widest)), i, column, pad;

	if (!widest)
		command_no_memory();
	if (command_lacks_memory()) {
		free(widest);
		return;
	}
	for (column = 0; column < t->n_columns; column++)
		widest[column] = column_width(t, column);
	for (i = 0; i < t->n_cells; i++) {
		column = i % t->n_columns;
		if (!column)
			fputs(indent, stdout);
		text_print(t->cell[i]);
		pad = column + 1 < t->n_columns ? widest[column] - width(t->cell[i]) + 2 : 0;
		while (pad--)
			putchar(' ');
		if (column + 1 == t->n_columns)
			putchar('\n');
	}
	free(widest);
}

void table_fini(struct table *t)
{
	while (t->n_cells)
		free(t->cell[--t->n_cells]);
	free(t->cell);
}

size_t text_distance(const char *a, const char *b)
{
	size_t row[64], n = strlen(b), i, k, diagonal, above, best;

	if (n + 1 > sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (k = 0; k <= n; k++)
		row[k] = k;
	for (i = 0; a[i]; i++) {
		diagonal = row[0];
		row[0] = i + 1;
		for (k = 1; k <= n; k++) {
			above = row[k];
			best = diagonal + (a[i] != b[k - 1]);
			best = best < above + 1 ? best : above + 1;
			row[k] = best < row[k - 1] + 1 ? best : row[k - 1] + 1;
			diagonal = above;
		}
	}
	return row[n];
}
