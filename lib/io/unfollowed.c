#include "io/unfollowed.h"

#include <string.h>

#include "base/path.h"
#include "base/text.h"

/* The link's target as an absolute path without "." and "..", by the names alone. */
static const char *target_of(const struct uns_root *root, const char *link, struct uns_arena *arena)
{
	const char *text, *dir, *path;

	if (uns_root_readlink(root, link, arena, &text, NULL) < 0)
		return NULL;
	dir = *text == '/' ? "" : uns_path_join(arena, uns_root_path(root) + 1, uns_path_parent(arena, link));
	while (*text == '/')
		text++;
	path = dir ? uns_path_resolve(arena, dir, text) : NULL;
	return path ? uns_arena_printf(arena, "/%s", path) : NULL;
}

int uns_unfollowed_find(const struct uns_root *root, const char *rel, struct uns_arena *arena,
			struct uns_unfollowed *out, struct uns_err *err)
{
	const char *end, *path;
	struct uns_stat st;

	for (end = rel; end; end = *end ? end + 1 : NULL) {
		end = strchrnul(end, '/');
		UNS_TRY_ALLOC(path = uns_arena_strn(arena, rel, (size_t)(end - rel)), err);
		if (!*path)
			continue;
		if (uns_root_stat(root, path, false, &st, NULL) < 0)
			return 0;
		if (st.kind != UNS_KIND_LINK)
			continue;
		if (uns_root_stat(root, path, true, &st, NULL) < 0)
			return 0;
		if (st.kind != UNS_KIND_LINK)
			continue;
		out->link = path;
		out->target = target_of(root, path, arena);
		if (!out->target) /* it changes at this moment */
			return 0;
		out->dir = *end ? out->target : uns_path_parent(arena, out->target);
		return out->dir ? 1 : uns_oom(err);
	}
	return 0;
}

static bool begins_with_one(const char *name, const char *const *prefixes)
{
	for (; prefixes && *prefixes; prefixes++)
		if (uns_str_starts(name, *prefixes))
			return true;
	return !prefixes;
}

int uns_unfollowed_in(const struct uns_root *root, const char *rel, const struct uns_listing *list,
		      const char *const *prefixes, struct uns_arena *arena, struct uns_unfollowed *out,
		      struct uns_err *err)
{
	const char *path;
	size_t i;
	int code = 0;

	for (i = 0; i < list->n && code == 0; i++) {
		if (list->v[i].kind != UNS_KIND_LINK || !begins_with_one(list->v[i].name, prefixes))
			continue;
		UNS_TRY_ALLOC(path = uns_path_join(arena, rel, list->v[i].name), err);
		code = uns_unfollowed_find(root, path, arena, out, err);
	}
	return code;
}
