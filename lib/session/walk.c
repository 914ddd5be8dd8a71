/* From a path of the tree to what is there. The first component is a view, then come SOURCE's own
 * directories, and inside a checkpoint the view's files. */
#include "session/session.h"

#include <string.h>

#include "base/hash.h"
#include "base/path.h"

#define INFO_DIR ".unshard"

uint64_t ino_of(const struct uns_view *view, uint64_t parameter, const char *path,
		uint64_t generation, const char *inside)
{
	uint64_t h = uns_hash_str(UNS_HASH_INIT, view ? view->name : "");

	h = uns_hash_u64(h, parameter);
	h = uns_hash_str(h, path);
	h = uns_hash_u64(h, generation);
	h = uns_hash_end(uns_hash_str(h, inside));
	return h < 2 ? h + 2 : h; /* 0 is no inode, 1 is FUSE's root */
}

/* Split off the first component; *rest is behind its slash. */
static size_t component(const char *path, const char **rest)
{
	size_t n = strcspn(path, "/");

	*rest = path + n + (path[n] == '/');
	return n;
}

static bool is_info_dir(const char *rest, const char **inside)
{
	size_t n = component(rest, inside);

	return n == strlen(INFO_DIR) && strncmp(rest, INFO_DIR, n) == 0;
}

static bool known_name(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* -- inside a checkpoint -- */

static bool shown_has_dir(const struct shown *shown, const char *inside)
{
	size_t n = strlen(inside), i;

	for (i = 0; i < shown->tree.n; i++)
		if (strncmp(shown->tree.v[i].path, inside, n) == 0 &&
		    shown->tree.v[i].path[n] == '/')
			return true;
	return false;
}

static int find_shown(struct unshard *u, struct spot *spot, const char *inside,
		      struct uns_err *err)
{
	enum show_state state;
	struct uns_err why = { 0 };
	int code = show_state_of(u, spot->place, spot->view, spot->parameter, &state, &why);

	/* What cannot be read now stands there, and fails for who looks into it. */
	if (code < 0 && (*inside || spot->as_file))
		return uns_fail(err, code, "%s", why.text);
	if (code == 0 && state != SHOW_OK && state != SHOW_DAMAGED)
		return uns_fail(err, -ENOENT, "%s", why.text);
	spot->kind = SPOT_SHOWN;
	spot->inside = inside;
	if (!*inside && !spot->as_file)
		return 0;
	UNS_TRY(snapshot_get(u, spot->place, &spot->snap, err));
	UNS_TRY(show_tree(u, spot->place, spot->snap, spot->view, spot->parameter, &spot->shown,
			  err));
	if (spot->as_file && spot->shown->tree.whole) {
		spot->file = spot->shown->tree.whole;
		return *inside ? uns_fail(err, -ENOTDIR, "%s is a file", spot->file->path) : 0;
	}
	spot->file = uns_vtree_find(&spot->shown->tree, inside);
	if (*inside && !spot->file && !shown_has_dir(spot->shown, inside))
		return uns_fail(err, -ENOENT, "no such file");
	return 0;
}

static int find_info(struct unshard *u, struct spot *spot, const char *name, struct uns_err *err)
{
	spot->kind = SPOT_INFO;
	spot->inside = name;
	if (!*name)
		return 0;
	if (!known_name(info_names, name))
		return uns_fail(err, -ENOENT, "no such file");
	return info_text(u, spot->place, spot->view, spot->parameter, name, &spot->text, err);
}

static int find_in_checkpoint(struct unshard *u, struct spot *spot, const char *rest,
			      struct uns_err *err)
{
	const char *name;

	if (is_info_dir(rest, &name)) {
		UNS_TRY(find_info(u, spot, name, err));
		spot->ino = ino_of(spot->view, spot->parameter, spot->path,
				   spot->place->generation, rest);
		return 0;
	}
	UNS_TRY(find_shown(u, spot, rest, err));
	spot->ino = ino_of(spot->view, spot->parameter, spot->path, spot->place->generation,
			   *rest || !spot->as_file ? rest : "/");
	return 0;
}

/* -- SOURCE's own directories -- */

static int find_entry(struct unshard *u, struct spot *spot, struct uns_err *err)
{
	const char *target, *resolved;

	UNS_TRY(uns_root_stat(u->root, spot->path, false, &spot->stat, err));
	if (spot->stat.kind == UNS_KIND_LINK) {
		/* A relative link that stays inside is a link of the view; others are followed,
		 * where that is allowed. */
		UNS_TRY(uns_root_readlink(u->root, spot->path, &spot->arena, &target, err));
		resolved = uns_path_resolve(&spot->arena,
					    uns_path_parent(&spot->arena, spot->path), target);
		if (!resolved)
			UNS_TRY(uns_root_stat(u->root, spot->path, true, &spot->stat, err));
	}
	if (spot->stat.kind == UNS_KIND_OTHER)
		return uns_fail(err, -ENOENT, "%s is neither file nor directory", spot->path);
	spot->kind = SPOT_SOURCE;
	spot->ino = ino_of(spot->view, spot->parameter, spot->path,
			   spot->stat.kind == UNS_KIND_FILE
				   ? uns_hash_u64(uns_hash_u64(spot->stat.id.ino,
							       (uint64_t)spot->stat.id.mtime_ns),
						  spot->stat.id.size)
				   : 0,
			   "");
	return 0;
}

/* Directory `spot->path` was reached; `rest` is below it. */
static int find_below(struct unshard *u, struct spot *spot, const char *rest, struct uns_err *err)
{
	const char *next, *dir, *name;
	size_t n;
	int found;

	for (;;) {
		if (session_hides(u, spot->path))
			return uns_fail(err, -ENOENT, "no such file");
		UNS_TRY(place_get(u, spot->path, &spot->place, err));
		if (spot->place->format)
			return find_in_checkpoint(u, spot, rest, err);
		if (!*rest)
			return find_entry(u, spot, err);
		place_put(u, spot->place);
		spot->place = NULL;

		n = component(rest, &next);
		dir = spot->path;
		name = uns_arena_strn(&spot->arena, rest, n);
		spot->path = name ? uns_path_join(&spot->arena, dir, name) : NULL;
		if (!spot->path)
			return uns_oom(err);
		rest = next;
		UNS_TRY(found = forms_find(u, spot, dir, name, err));
		if (found)
			return find_in_checkpoint(u, spot, rest, err);
		if (session_hides(u, spot->path))
			return uns_fail(err, -ENOENT, "no such file");
		UNS_TRY(find_entry(u, spot, err));
		if (spot->stat.kind != UNS_KIND_DIR)
			return *rest ? uns_fail(err, -ENOTDIR, "%s is not a directory", spot->path)
				     : 0;
	}
}

/* -- the mount's root -- */

static int find_root_info(struct unshard *u, struct spot *spot, const char *name,
			  struct uns_err *err)
{
	spot->kind = SPOT_ROOT_INFO;
	spot->inside = name;
	spot->ino = ino_of(NULL, 0, INFO_DIR, 0, name);
	UNS_TRY(uns_root_stat(u->root, "", true, &spot->stat, err));
	if (!*name)
		return 0;
	if (!known_name(root_info_names, name))
		return uns_fail(err, -ENOENT, "no such file");
	if (root_info_text(u, name, &spot->text) < 0)
		return uns_oom(err);
	return 0;
}

/* A name of SOURCE wins over a made one: then ours is ".unshard.unshard". */
static bool root_info_wanted(struct unshard *u, const char *path, const char **inside)
{
	struct uns_stat st;
	size_t n = component(path, inside);

	if (n == strlen(INFO_DIR INFO_DIR) && strncmp(path, INFO_DIR INFO_DIR, n) == 0)
		return true;
	if (!is_info_dir(path, inside))
		return false;
	return !u->only || uns_root_stat(u->root, INFO_DIR, false, &st, NULL) < 0;
}

static int find(struct unshard *u, struct spot *spot, const char *path, struct uns_err *err)
{
	const char *rest;
	size_t n;

	spot->path = "";
	if (root_info_wanted(u, path, &rest))
		return find_root_info(u, spot, rest, err);
	if (u->only) {
		spot->view = u->only;
		spot->parameter = u->only_parameter;
		return find_below(u, spot, path, err);
	}
	if (!*path) {
		spot->kind = SPOT_ROOT;
		spot->ino = 1;
		return uns_root_stat(u->root, "", true, &spot->stat, err);
	}
	n = component(path, &rest);
	spot->view = view_find(path, n, &spot->parameter);
	if (!spot->view)
		return uns_fail(err, -ENOENT, "there is no view %.*s", (int)n, path);
	return find_below(u, spot, rest, err);
}

int spot_find(struct unshard *u, const char *path, struct spot *out, struct uns_err *err)
{
	int code;

	memset(out, 0, sizeof(*out));
	code = find(u, out, path, err);
	if (code < 0)
		spot_fini(u, out);
	return code;
}

void spot_fini(struct unshard *u, struct spot *spot)
{
	snapshot_put(u, spot->snap);
	place_put(u, spot->place);
	uns_text_fini(&spot->text);
	uns_arena_fini(&spot->arena);
	memset(spot, 0, sizeof(*spot));
}
