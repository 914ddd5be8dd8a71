/* Terminal columns are counted in characters, not bytes: names may be UTF-8. */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* How many bytes at s are one character of UTF-8; 0 = they are none. */
static size_t character(const unsigned char *s)
{
	static const unsigned char least[] = { 0, 0, 0xc2, 0xe0, 0xf0 };
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4, i;

	if (n == 1)
		return 1;
	if (s[0] < least[n] || s[0] > 0xf4)
		return 0;
	for (i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* longer than need be, a surrogate, or above U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

cJSON *json_string(const char *text)
{
	static const char unknown[] = "\xef\xbf\xbd";
	const unsigned char *s = (const unsigned char *)text;
	char *valid, *to;
	cJSON *string;
	size_t n;

	if (!text)
		return cJSON_CreateNull();
	to = valid = malloc(3 * strlen(text) + 1);
	if (!valid)
		return NULL;
	for (; *s; s += n ? n : 1) {
		n = character(s);
		memcpy(to, n ? (const char *)s : unknown, n ? n : 3);
		to += n ? n : 3;
	}
	*to = '\0';
	string = cJSON_CreateString(valid);
	free(valid);
	return string;
}

void json_add(cJSON *object, const char *key, const char *text)
{
	cJSON_AddItemToObject(object, key, json_string(text));
}

void table_add(struct table *t, const char *cell)
{
	size_t cap = t->cap ? 2 * t->cap : 64;
	char **grown = t->cell;

	if (t->n_cells == t->cap) {
		grown = realloc(t->cell, cap * sizeof(*grown));
		if (!grown) {
			t->failed = 1;
			return;
		}
		t->cell = grown;
		t->cap = cap;
	}
	t->cell[t->n_cells] = strdup(cell);
	if (t->cell[t->n_cells])
		t->n_cells++;
	else
		t->failed = 1;
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

	for (column = 0; widest && column < t->n_columns; column++)
		widest[column] = column_width(t, column);
	for (i = 0; widest && i < t->n_cells; i++) {
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
