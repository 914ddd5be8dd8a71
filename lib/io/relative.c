#include "io/relative.h"

#include <string.h>

#include "base/path.h"

static uint32_t count_names(const char *path)
{
	uint32_t n = *path != '\0';

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* How many bytes of both are the same names. */
static size_t common_names(const char *a, const char *b)
{
	size_t i, n = 0;

	for (i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			n = i + 1;
	if ((!a[i] || a[i] == '/') && (!b[i] || b[i] == '/'))
		n = i + (a[i] == '/' && b[i] == '/');
	return n;
}

static const char *after(const char *path, size_t n)
{
	return path[n] == '/' ? path + n + 1 : path + n;
}

int uns_relative_of(const struct uns_root *root, const char *dir, const struct uns_root *other, const char *path,
		    struct uns_relative *out)
{
	const char *up = "";
	uint32_t n = 0;
	size_t same;

	for (; root != other; n++) {
		uns_root_up(root, "", NULL, &root, &up, NULL);
		if (!up)
			return -ENOTSUP;
	}
	if (n) { /* the directory's own path ends where its root begins */
		*out = (struct uns_relative){ count_names(dir) + n, path };
		return 0;
	}
	same = common_names(dir, path);
	*out = (struct uns_relative){ count_names(after(dir, same)), after(path, same) };
	return 0;
}

/* Only names, as they are below a root. */
static bool is_plain(const char *path)
{
	size_t n;

	if (!*path)
		return true;
	for (;; path += n + 1) {
		n = strcspn(path, "/");
		if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		if (!path[n])
			return true;
	}
}

int uns_relative_find(const struct uns_root *root, const char *dir, const struct uns_relative *at,
		      struct uns_arena *arena, const struct uns_root **out_root, const char **path)
{
	uint32_t i;

	if (!is_plain(at->below))
		return -EBADMSG;
	for (i = 0; i < at->up; i++) {
		if (uns_root_up(root, dir, arena, &root, &dir, NULL) < 0)
			return -ENOMEM;
		if (!dir)
			return -ENOENT;
	}
	*out_root = root;
	*path = uns_path_join(arena, dir, at->below);
	return *path ? 0 : -ENOMEM;
}
