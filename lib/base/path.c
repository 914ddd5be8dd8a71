/* Text rules for relative paths and for names that carry numbers. */
#include "base/path.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

char *uns_path_join(struct uns_arena *arena, const char *dir, const char *name)
{
	if (!dir || !name || !*dir)
		return uns_arena_str(arena, dir ? name : NULL);
	if (!*name)
		return uns_arena_str(arena, dir);
	return uns_arena_printf(arena, "%s/%s", dir, name);
}

static bool drop_last(char *path, size_t *len)
{
	if (!*len)
		return false;
	while (*len && path[*len - 1] != '/')
		--*len;
	if (*len)
		--*len;
	return true;
}

char *uns_path_resolve(struct uns_arena *arena, const char *dir, const char *path)
{
	size_t len = strlen(dir), n;
	char *out;

	if (*path == '/')
		return NULL;
	out = uns_arena_alloc(arena, len + strlen(path) + 2, 1);
	if (!out)
		return NULL;
	memcpy(out, dir, len);
	for (; *path; path += n + (path[n] == '/')) {
		n = strcspn(path, "/");
		if (n == 0 || (n == 1 && path[0] == '.'))
			continue;
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			if (!drop_last(out, &len))
				return NULL;
			continue;
		}
		if (len)
			out[len++] = '/';
		memcpy(out + len, path, n);
		len += n;
	}
	out[len] = '\0';
	return out;
}

const char *uns_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *uns_path_parent(struct uns_arena *arena, const char *path)
{
	const char *slash = strrchr(path, '/');

	return uns_arena_strn(arena, path, slash ? (size_t)(slash - path) : 0);
}

bool uns_path_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return n == 0 || (strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/'));
}

bool uns_str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool uns_str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Of equal numbers, that with more zeros in front comes first. */
static int cmp_digits(const char **a, const char **b)
{
	size_t na, nb;
	int c, zeros = 0;

	for (; **a == '0' && isdigit((unsigned char)(*a)[1]); zeros--)
		++*a;
	for (; **b == '0' && isdigit((unsigned char)(*b)[1]); zeros++)
		++*b;
	for (na = 0; isdigit((unsigned char)(*a)[na]); na++)
		;
	for (nb = 0; isdigit((unsigned char)(*b)[nb]); nb++)
		;
	if (na != nb)
		return na < nb ? -1 : 1;
	c = memcmp(*a, *b, na);
	*a += na;
	*b += nb;
	return c ? c : zeros;
}

int uns_str_natural(const char *a, const char *b)
{
	const char *x = a, *y = b;
	int c;

	while (*x && *y) {
		if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
			c = cmp_digits(&x, &y);
			if (c)
				return c;
			continue;
		}
		if (*x != *y)
			return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
		x++;
		y++;
	}
	return *x ? 1 : *y ? -1 : 0;
}

bool uns_str_in(const char *s, const char *const *names)
{
	for (; names && *names; names++)
		if (strcmp(*names, s) == 0)
			return true;
	return false;
}

bool uns_str_glob(const char *pattern, const char *s)
{
	const char *star = NULL, *retry = NULL;

	while (*s) {
		if (*pattern == '*') {
			star = pattern++;
			retry = s;
		} else if (*pattern == '?' || *pattern == *s) {
			pattern++;
			s++;
		} else if (star) {
			pattern = star + 1;
			s = ++retry;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

bool uns_str_number(const char *s, const char *prefix, const char *suffix, unsigned long long *out)
{
	unsigned long long v = 0;

	if (!uns_str_starts(s, prefix))
		return false;
	s += strlen(prefix);
	if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
		return false;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, 10ULL, &v) ||
		    __builtin_add_overflow(v, (unsigned long long)(*s - '0'), &v))
			return false;
	if (strcmp(s, suffix) != 0)
		return false;
	*out = v;
	return true;
}

const char *uns_path_for_shell(struct uns_arena *arena, const char *root, const char *rel)
{
	const char *top = strcmp(root, "/") == 0 ? "/" : "";
	char *path = uns_path_join(arena, *top ? "" : root, rel);
	bool plain = path && !path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
						"0123456789_./=+,:@%-")];

	if (!path || strchr(path, '\''))
		return NULL;
	return uns_arena_printf(arena, plain ? "%s%s" : "'%s%s'", top, path);
}
