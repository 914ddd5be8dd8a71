/* unshard_list and unshard_node_list: what is in a directory of the tree. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "paths/forms.h"
#include "paths/info.h"
#include "paths/run_mark.h"
#include "paths/nodes.h"

struct unshard_listing {
	struct unshard *u;
	struct uns_arena arena;
	struct uns_map names;
	const char *dir; /* its path in the tree */
	struct listed {
		struct spot_key key; /* for nodes; texts in the arena */
		struct unshard_dirent entry;
	} *v;
	size_t n, cap;
};

void unshard_listing_free(unshard_listing *l)
{
	if (!l)
		return;
	uns_map_fini(&l->names);
	free(l->v);
	uns_arena_fini(&l->arena);
	free(l);
}

/* -- entries -- */

/* Entries of one directory mostly lie in one checkpoint. */
static const char *keep_path(struct unshard_listing *l, const char *path)
{
	const char *last = l->n ? l->v[l->n - 1].key.path : NULL;

	return last && strcmp(last, path) == 0 ? last : uns_arena_str(&l->arena, path);
}

static int listing_add(struct unshard_listing *l, const char *name, size_t len, const struct spot_key *key,
		       const struct unshard_stat *st)
{
	const char *copy = uns_arena_strn(&l->arena, name, len);
	struct listed *e;

	if (!copy)
		return -ENOMEM;
	if (uns_map_get(&l->names, copy))
		return 0;
	if (!UNS_HEAP_ROOM(l->v, l->n, l->cap))
		return -ENOMEM;
	e = &l->v[l->n];
	e->key = *key;
	e->key.path = keep_path(l, key->path);
	e->key.inside = uns_arena_str(&l->arena, key->inside);
	if (!e->key.path || !e->key.inside || !uns_map_put(&l->names, copy, (void *)copy, NULL))
		return -ENOMEM;
	e->entry = (struct unshard_dirent){ copy, *st };
	l->n++;
	return 0;
}

/* What is at a spot, so that listing and lookup never disagree; 0 when it is not shown. `code` and `why`:
 * of getting there. Ends the spot. */
static int add_spot(struct unshard_listing *l, int code, struct spot *spot, const char *name, struct uns_err *why)
{
	struct unshard_stat st;

	if (code == 0)
		code = spot_check(l->u, spot, why);
	if (code == 0)
		spot_stat(l->u, spot, &st);
	if (code == 0)
		code = listing_add(l, name, strlen(name), &spot->key, &st);
	spot_fini(l->u, spot);
	return code;
}

/* Where it is not known now whether a name is shown, there is no listing: one without the name would be wrong. (What is
 * kept to others and what is just being replaced is not shown.) */
static int without_name(int code, const struct uns_err *why, struct uns_err *err)
{
	if (code == -ENOMEM)
		return uns_oom(err);
	return code == -EACCES || code == -ESTALE ? 0 : uns_fail_if_passing(err, code, why);
}

/* What was replaced meanwhile is looked at once more, as it is now. */
enum { LOOKS = 2 };

/* child: the name is looked up in the directory `key`; else it is that of `key`. */
static int add_looked(struct unshard_listing *l, const struct spot_key *key, bool child, const char *name,
		      struct uns_err *err)
{
	struct uns_err why;
	struct spot spot;
	int code = -ESTALE, looks;

	for (looks = 0; looks < LOOKS && code == -ESTALE; looks++) {
		why = (struct uns_err){ 0 };
		spot = (struct spot){ .key = *key, .look = LOOK_NAMES };
		code = child ? spot_enter(l->u, &spot, name, &why) : spot_of(l->u, key, LOOK_LISTS, &spot, &why);
		code = add_spot(l, code, &spot, name, &why);
	}
	return without_name(code, &why, err);
}

static int add_child(struct unshard_listing *l, const struct spot_key *dir, const char *name, struct uns_err *err)
{
	return add_looked(l, dir, true, name, err);
}

static int add_key(struct unshard_listing *l, const struct spot_key *key, const char *name, struct uns_err *err)
{
	return add_looked(l, key, false, name, err);
}

/* -- directories -- */

static int list_views(struct unshard_listing *l, const struct spot_key *dir, struct uns_err *err)
{
	const char *const *parameter;
	const char *name;
	size_t i;

	for (i = 0; uns_views[i]; i++) {
		for (parameter = uns_views[i]->listed; *parameter; parameter++) {
			name = uns_arena_printf(&l->arena, "%s%s%s", uns_views[i]->name, **parameter ? "-" : "",
						*parameter);
			if (!name)
				return -ENOMEM;
			UNS_TRY(add_child(l, dir, name, err));
		}
	}
	return 0;
}

/* Children of a directory of a view's tree, without looking each up. */
static int list_shown(struct unshard_listing *l, struct spot *spot, struct uns_err *err)
{
	size_t skip = strlen(spot->key.inside);
	struct unshard_stat st;
	struct contents_at at;
	struct spot child;
	const char *name, *end;

	UNS_TRY(spot_load(l->u, spot, err));
	UNS_TRY(contents_begin(spot->contents, spot->key.inside, &spot->arena, &at, err));
	child = *spot;
	child.key.top = false;
	while (contents_next(&at, &child.file)) {
		name = child.file.path + skip + (skip > 0);
		end = strchr(name, '/');
		child.is_file = !end;
		child.key.inside = child.file.path;
		if (end)
			child.key.inside = uns_arena_strn(&l->arena, child.file.path, (size_t)(end - child.file.path));
		if (!child.key.inside)
			return -ENOMEM;
		child.ino = spot_ino_inside(l->u, spot, child.key.inside);
		spot_stat(l->u, &child, &st);
		UNS_TRY(listing_add(l, name, end ? (size_t)(end - name) : strlen(name), &child.key, &st));
	}
	return 0;
}

/* If the view shows this checkpoint as one file: adds the names that it has there. Returns 1 then, else 0. */
static int add_forms(struct unshard_listing *l, const struct spot_key *dir, const struct uns_entry *entry,
		     struct uns_err *err)
{
	struct spot_key key = { .kind = SPOT_SHOWN,
				.view = dir->view,
				.parameter = dir->parameter,
				.path = uns_path_join(&l->arena, dir->path, entry->name),
				.inside = "" };
	struct form_names names;
	struct dir_record *record;
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(key.path, err);
	if (!dir->view->form || !session_walks_into(l->u, key.path, entry->kind))
		return 0;
	code = record_look(l->u, key.path, LOOK_NAMES, &record, &why);
	if (code < 0)
		return without_name(code, &why, err);
	if (forms_has_file(dir->view, record)) {
		code = forms_names(l->u, dir->view, record, &l->arena, &names, err);
		key.as_file = true;
		if (code == 0)
			code = add_key(l, &key, names.file, err);
		key.as_file = false;
		if (code == 0 && names.dir_is_listed)
			code = add_key(l, &key, names.dir, err);
		code = code < 0 ? code : 1;
	}
	record_put(l->u, record);
	return code;
}

static int by_name(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;

	return uns_str_natural(x->entry.name, y->entry.name);
}

static int list_source(struct unshard_listing *l, const struct spot_key *dir, struct uns_err *err)
{
	const int64_t began_ns = uns_now_ns();
	struct uns_listing list;
	bool sorted = true;
	size_t i;
	int added;

	UNS_TRY(uns_root_list(l->u->root, dir->path, &l->arena, &list, err));
	for (i = 0; i < list.n; i++) {
		UNS_TRY(added = add_forms(l, dir, &list.v[i], err));
		sorted &= !added;
		if (!added)
			UNS_TRY(add_child(l, dir, list.v[i].name, err));
	}
	if (run_mark_is_wanted(dir->view, &list)) {
		UNS_TRY(add_child(l, dir, dir->view->run_mark, err));
		sorted = false;
	}
	if (!sorted)
		qsort(l->v, l->n, sizeof(*l->v), by_name);
	records_listed(&l->u->records, dir->path, &list, uns_now_ns() - began_ns);
	return 0;
}

static int list_info(struct unshard_listing *l, const struct spot_key *dir, const char *const *names,
		     struct uns_err *err)
{
	struct spot_key key = *dir;

	for (; *names; names++) {
		key.inside = *names;
		UNS_TRY(add_key(l, &key, *names, err));
	}
	return 0;
}

static int list_spot(struct unshard_listing *l, struct spot *spot, struct uns_err *err)
{
	if (!spot_is_dir(spot))
		return uns_fail(err, -ENOTDIR, "%s is not a directory", l->dir);
	switch (spot->key.kind) {
	case SPOT_ROOT:
		return list_views(l, &spot->key, err);
	case SPOT_ROOT_INFO:
		return list_info(l, &spot->key, root_info_names, err);
	case SPOT_INFO:
		return list_info(l, &spot->key, info_names, err);
	case SPOT_SHOWN:
		return list_shown(l, spot, err);
	case SPOT_SOURCE:
	case SPOT_MARK: /* no directory */
	case SPOT_NEWEST:
		break;
	}
	return list_source(l, &spot->key, err);
}

/* Ends the spot. */
static int list(struct unshard *u, struct spot *spot, const char *name, unshard_listing **out, struct uns_err *err)
{
	struct unshard_listing *l = calloc(1, sizeof(*l));
	int code = -ENOMEM;

	if (l) {
		l->u = u;
		l->dir = uns_arena_str(&l->arena, name);
		code = l->dir ? list_spot(l, spot, err) : -ENOMEM;
	}
	spot_fini(u, spot);
	if (code < 0)
		unshard_listing_free(l);
	else
		*out = l;
	return code == -ENOMEM ? uns_oom(err) : code;
}

int unshard_list(unshard *u, const char *path, unshard_listing **out, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	int code = spot_find(u, path, &spot, &err);

	if (code == 0)
		code = list(u, &spot, path, out, &err);
	return give_error(error, &err, code);
}

int unshard_node_list(const unshard_node *node, unshard_listing **out, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct spot spot;
	bool moved_on; /* not asked: if the node has changed, its present entries are listed */
	int code = node_spot(node, LOOK_LISTS, &spot, &moved_on, &err);

	if (code == 0)
		code = list(node_session(node), &spot, unshard_node_path(node), out, &err);
	return give_error(error, &err, code);
}

size_t unshard_listing_count(const unshard_listing *l)
{
	return l->n;
}

const struct unshard_dirent *unshard_listing_at(const unshard_listing *l, size_t i)
{
	return i < l->n ? &l->v[i].entry : NULL;
}

int unshard_listing_node(const unshard_listing *l, size_t i, unshard_node **out, struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct unshard_dirent *entry = unshard_listing_at(l, i);
	struct uns_err err = { 0 };
	const char *path;

	if (!entry)
		return give_error(error, &err, uns_fail(&err, -EINVAL, "there is no entry %zu of %zu", i, l->n));
	path = uns_path_join(&arena, l->dir, entry->name);
	*out = path ? node_new(l->u, &l->v[i].key, path, &entry->stat) : NULL;
	return *out ? 0 : give_error(error, &err, uns_oom(&err));
}
