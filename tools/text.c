/* Sizes, paths and names as people read them. */
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

bool path_is_url(const char *path)
{
	const size_t n = strcspn(path, ":/");

	return n && strncmp(path + n, "://", strlen("://")) == 0;
}

const char *path_cut(char *path, const char **above)
{
	char *slash = strrchr(path, '/');

	*above = path;
	if (!slash[1] || (path_is_url(path) && slash == strstr(path, "://") + 2))
		return path + strlen(path);
	*slash = '\0';
	if (slash == path)
		*above = "/";
	return slash + 1;
}

char *path_real(const char *path)
{
	size_t n = strlen(path);

	if (!path_is_url(path))
		return realpath(path, NULL);
	while (path + n > strstr(path, "://") + 3 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

char *path_name(const char *path)
{
	char *real = path_real(path), *name = real ? strdup(strrchr(real, '/') + 1) : NULL;

	free(real);
	return name;
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
