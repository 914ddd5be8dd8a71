/* Reads a mark, and takes from it only what can be a directory's name. */
#include "zero/mark.h"

#include <string.h>

enum { MAX_MARK_BYTES = 4096 };

/* `n` bytes that a NUL follows: one component of a path. */
static bool is_plain(const char *name, size_t n)
{
	return n && strlen(name) == n && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

int uns_zero_read_mark(const struct uns_root *root, const char *path, struct uns_arena *arena, const char **tag,
		       struct uns_stat *stat, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct uns_span text;
	const char *name;
	size_t n;
	int code;

	*tag = NULL;
	code = uns_root_read_file(root, path, MAX_MARK_BYTES, arena, &text, stat, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	n = uns_span_left(&text);
	while (n && strchr(" \t\r\n", text.p[n - 1]))
		n--;
	UNS_TRY_ALLOC(name = uns_arena_strn(arena, (const char *)text.p, n), err);
	if (is_plain(name, n))
		*tag = name;
	return 1;
}
