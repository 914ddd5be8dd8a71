/* unshard_stat, unshard_list and unshard_readlink: the tree as a file system sees it. */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

enum { DIR_MODE = 0555, FILE_MODE = 0444 };

static void stat_shown(const struct spot *spot, struct unshard_stat *out)
{
	const struct vattr *attr;

	out->stable = true;
	if (!spot->file)
		return;
	attr = &spot->shown->attr[spot->file == spot->shown->tree.whole
					  ? (ptrdiff_t)spot->shown->tree.n
					  : spot->file - spot->shown->tree.v];
	out->kind = UNSHARD_FILE;
	out->mode = attr->mode;
	out->size_bytes = spot->file->layout.size_bytes;
	out->mtime_ns = attr->mtime_ns;
	out->nlink = 1;
}

static void stat_info(const struct spot *spot, struct unshard_stat *out)
{
	out->live = true;
	if (!*spot->inside) {
		out->mode = DIR_MODE;
		return;
	}
	out->kind = UNSHARD_FILE;
	out->mode = FILE_MODE;
	out->size_bytes = spot->text.len;
	out->nlink = 1;
}

static void stat_source(const struct uns_stat *st, struct unshard_stat *out)
{
	out->kind = st->kind == UNS_KIND_DIR	? UNSHARD_DIR
		    : st->kind == UNS_KIND_LINK ? UNSHARD_LINK
						: UNSHARD_FILE;
	out->mode = st->mode & DIR_MODE;
	out->uid = st->uid;
	out->gid = st->gid;
	out->mtime_ns = st->id.mtime_ns;
	if (st->kind != UNS_KIND_DIR) {
		out->size_bytes = st->id.size;
		out->nlink = 1;
	}
}

void spot_stat(const struct spot *spot, struct unshard_stat *out)
{
	memset(out, 0, sizeof(*out));
	out->kind = UNSHARD_DIR;
	out->nlink = 2;
	if (spot->place)
		stat_source(&spot->place->stat, out);
	else
		stat_source(&spot->stat, out);
	if (spot->kind == SPOT_SOURCE)
		stat_source(&spot->stat, out);
	else if (spot->kind == SPOT_SHOWN)
		stat_shown(spot, out);
	else if (spot->kind == SPOT_INFO || spot->kind == SPOT_ROOT_INFO)
		stat_info(spot, out);
	out->ino = spot->ino;
}

int unshard_stat(unshard *u, const char *path, struct unshard_stat *out,
		 struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	if (code < 0)
		return give_error(error, &err, code);
	spot_stat(&spot, out);
	/* A checkpoint's own directory is looked at again like any run-level one: its inode is what
	 * tells that the checkpoint changed. */
	if (spot.kind == SPOT_SHOWN && !*spot.inside)
		out->stable = false;
	spot_fini(u, &spot);
	return 0;
}

int unshard_readlink(unshard *u, const char *path, char **target, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	const char *text;
	int code = spot_find(u, path, &spot, &err);

	if (code < 0)
		return give_error(error, &err, code);
	if (spot.kind != SPOT_SOURCE || spot.stat.kind != UNS_KIND_LINK)
		code = uns_fail(&err, -EINVAL, "%s is not a link", path);
	if (code == 0)
		code = uns_root_readlink(u->root, spot.path, &spot.arena, &text, &err);
	if (code == 0 && !(*target = strdup(text)))
		code = uns_oom(&err);
	spot_fini(u, &spot);
	return give_error(error, &err, code);
}

/* -- listing -- */

struct listing {
	struct unshard_listing pub; /* first: handed out */
	struct uns_arena arena;
	struct uns_map names;
	size_t cap;
};

void unshard_listing_free(struct unshard_listing *listing)
{
	struct listing *l = (struct listing *)listing;

	if (!l)
		return;
	uns_map_fini(&l->names);
	free(l->pub.v);
	uns_arena_fini(&l->arena);
	free(l);
}

static int listing_add(struct listing *l, const char *name, size_t len,
		       const struct unshard_stat *st)
{
	char *copy = uns_arena_strn(&l->arena, name, len);

	if (!copy)
		return -ENOMEM;
	if (uns_map_get(&l->names, copy))
		return 0;
	if (!UNS_HEAP_ROOM(l->pub.v, l->pub.n, l->cap))
		return -ENOMEM;
	l->pub.v[l->pub.n++] = (struct unshard_dirent){ copy, *st };
	return uns_map_put(&l->names, copy, copy, NULL) ? 0 : -ENOMEM;
}

/* Stat `dir/name` through the front door, so that listing and stat never disagree. */
static int add_path(struct unshard *u, struct listing *l, const char *dir, const char *name,
		    size_t len)
{
	struct unshard_stat st;
	char *path = uns_path_join(&l->arena, dir, uns_arena_strn(&l->arena, name, len));

	if (!path)
		return -ENOMEM;
	return unshard_stat(u, path, &st, NULL) == 0 ? listing_add(l, name, len, &st) : 0;
}

static int list_views(struct unshard *u, struct listing *l)
{
	const char *const *parameter;
	const char *name;
	size_t i;

	for (i = 0; uns_views[i]; i++) {
		for (parameter = uns_views[i]->listed; *parameter; parameter++) {
			name = uns_arena_printf(&l->arena, "%s%s%s", uns_views[i]->name,
						**parameter ? "-" : "", *parameter);
			if (!name)
				return -ENOMEM;
			UNS_TRY(add_path(u, l, "", name, strlen(name)));
		}
	}
	return 0;
}

/* Children of a directory of a view's tree, without looking each up again. */
static int list_shown(struct unshard *u, struct spot *spot, struct listing *l, struct uns_err *err)
{
	size_t skip = strlen(spot->inside), i;
	const struct uns_vtree *tree;
	struct spot child = *spot;
	struct unshard_stat st;
	const char *name, *end;

	if (!spot->shown) {
		UNS_TRY(snapshot_get(u, spot->place, &spot->snap, err));
		UNS_TRY(show_tree(u, spot->place, spot->snap, spot->view, spot->parameter,
				  &spot->shown, err));
		child = *spot;
	}
	tree = &spot->shown->tree;
	for (i = 0; i < tree->n; i++) {
		if (!uns_path_within(tree->v[i].path, spot->inside))
			continue;
		name = tree->v[i].path + skip + (skip > 0);
		end = strchr(name, '/');
		child.file = end ? NULL : &tree->v[i];
		child.inside = tree->v[i].path;
		if (end)
			child.inside = uns_arena_strn(&l->arena, tree->v[i].path,
						      (size_t)(end - tree->v[i].path));
		if (!child.inside)
			return -ENOMEM;
		child.ino = ino_of(spot->view, spot->parameter, spot->path,
				   spot->place->generation, child.inside);
		spot_stat(&child, &st);
		UNS_TRY(listing_add(l, name, end ? (size_t)(end - name) : strlen(name), &st));
	}
	return 0;
}

/* A checkpoint that is a file here: its names instead of its own. 0 = it is none. */
static int add_forms(struct unshard *u, const struct spot *spot, const char *path,
		     const struct uns_entry *entry, struct listing *l, struct uns_err *err)
{
	const char *own = uns_path_join(&l->arena, spot->path, entry->name);
	struct form_names names;
	struct place *place;
	int code = 0;

	if (!spot->view || !spot->view->form || entry->kind != UNS_KIND_DIR || !own ||
	    session_hides(u, own) || place_get(u, own, &place, NULL) < 0)
		return 0;
	if (forms_has_file(spot->view, place)) {
		code = forms_names(u, spot->view, place, &l->arena, &names, err);
		if (code == 0)
			code = add_path(u, l, path, names.file, strlen(names.file));
		if (code == 0 && names.dir_is_listed)
			code = add_path(u, l, path, names.dir, strlen(names.dir));
		code = code < 0 ? code : 1;
	}
	place_put(u, place);
	return code;
}

static int by_name(const void *a, const void *b)
{
	const struct unshard_dirent *x = a, *y = b;

	return uns_str_natural(x->name, y->name);
}

static int list_source(struct unshard *u, const struct spot *spot, const char *path,
		       struct listing *l, struct uns_err *err)
{
	struct uns_listing list;
	bool sorted = true;
	size_t i;
	int added;

	UNS_TRY(uns_root_list(u->root, spot->path, &l->arena, &list, err));
	for (i = 0; i < list.n; i++) {
		UNS_TRY(added = add_forms(u, spot, path, &list.v[i], l, err));
		sorted &= !added;
		if (!added)
			UNS_TRY(add_path(u, l, path, list.v[i].name, strlen(list.v[i].name)));
	}
	if (latest_is_wanted(spot->view, &list)) {
		UNS_TRY(add_path(u, l, path, spot->view->run_mark, strlen(spot->view->run_mark)));
		sorted = false;
	}
	if (!sorted && l->pub.n)
		qsort(l->pub.v, l->pub.n, sizeof(*l->pub.v), by_name);
	return 0;
}

static int list_info(struct unshard *u, const char *path, const char *const *names,
		     struct listing *l)
{
	for (; *names; names++)
		UNS_TRY(add_path(u, l, path, *names, strlen(*names)));
	return 0;
}

static int list_spot(struct unshard *u, struct spot *spot, const char *path, struct listing *l,
		     struct uns_err *err)
{
	struct unshard_stat st;

	spot_stat(spot, &st);
	if (st.kind != UNSHARD_DIR)
		return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
	switch (spot->kind) {
	case SPOT_ROOT:
		return list_views(u, l);
	case SPOT_ROOT_INFO:
		return list_info(u, path, root_info_names, l);
	case SPOT_INFO:
		return list_info(u, path, info_names, l);
	case SPOT_SHOWN:
		return list_shown(u, spot, l, err);
	case SPOT_SOURCE:
		break;
	}
	return list_source(u, spot, path, l, err);
}

int unshard_list(unshard *u, const char *path, struct unshard_listing **out,
		 struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct listing *l;
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	if (code < 0)
		return give_error(error, &err, code);
	l = calloc(1, sizeof(*l));
	code = l ? list_spot(u, &spot, path, l, &err) : -ENOMEM;
	spot_fini(u, &spot);
	if (code < 0) {
		unshard_listing_free(l ? &l->pub : NULL);
		return give_error(error, &err, code);
	}
	*out = &l->pub;
	return 0;
}
