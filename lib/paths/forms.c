/* Checkpoints that appear as one file, and under which names: a Lightning directory X.ckpt (or X)
 * is the file X.ckpt in views that do so, and, where they show both, the directory X beside it. Scripts with Fabric
 * call the directory X.pth as well: then that is the file's name.
 * Owns these names; what is in the file is the view's. */
#include "paths/forms.h"

#include <string.h>

#include "base/path.h"

#define FILE_SUFFIX  ".ckpt" /* of a file whose directory has none of these */
#define TAKEN_SUFFIX ".unshard"

static const char *const file_suffixes[] = { FILE_SUFFIX, ".pth", ".pt", NULL };

bool forms_has_file(const struct uns_view *view, const struct dir_record *record)
{
	return record->is.format && record->is.format->is_one_file && view->form != UNS_FORM_DIR &&
	       (view->opens_files || record->is.stat.kind == UNS_KIND_DIR) && *record->path;
}

static const char *without(struct uns_arena *arena, const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	if (n <= m || !uns_str_ends(name, suffix))
		return NULL;
	return uns_arena_strn(arena, name, n - m);
}

/* NULL = the name has none of the files' suffixes, or memory is out. */
static const char *without_suffix(struct uns_arena *arena, const char *name)
{
	const char *base = NULL;
	size_t i;

	for (i = 0; file_suffixes[i] && !base; i++)
		base = without(arena, name, file_suffixes[i]);
	return base;
}

/* A name of SOURCE wins over a made one. */
static const char *made_name(struct unshard *u, struct uns_arena *arena, const char *dir, const char *own,
			     const char *name)
{
	const char *path = name ? uns_path_join(arena, dir, name) : NULL;
	struct uns_stat st;

	if (!path || strcmp(name, own) == 0 || uns_root_stat(u->root, path, false, &st, NULL) < 0)
		return path ? name : NULL;
	return uns_arena_printf(arena, "%s" TAKEN_SUFFIX, name);
}

int forms_names(struct unshard *u, const struct uns_view *view, const struct dir_record *record,
		struct uns_arena *arena, struct form_names *out, struct uns_err *err)
{
	const char *own = uns_path_name(record->path), *base = without_suffix(arena, own);
	const char *dir = uns_path_parent(arena, record->path);

	const char *file = base ? own : uns_arena_printf(arena, "%s" FILE_SUFFIX, own);

	out->file = dir ? made_name(u, arena, dir, own, file) : NULL;
	out->dir = dir ? made_name(u, arena, dir, own, base ? base : own) : NULL;
	out->dir_is_listed = view->form == UNS_FORM_BOTH;
	return out->file && out->dir ? 0 : uns_oom(err);
}

/* -- from a name to the checkpoint -- */

struct lookup {
	struct unshard *u;
	const struct uns_view *view;
	const char *dir, *name;
	struct uns_arena *arena;
	struct form_found *out;
};

/* What is shown as a directory is not looked at for its name. */
static int find_record(const struct lookup *l, const char *path, struct dir_record **out, struct uns_err *err)
{
	UNS_TRY(record_look(l->u, path, LOOK_NAMES, out, err));
	if (!forms_has_file(l->view, *out))
		return 0;
	record_put(l->u, *out);
	return record_get(l->u, path, out, err);
}

/* 1 = `own` is a checkpoint of that directory, and in this view it has the name looked for. */
static int try_directory(struct lookup *l, const char *own, struct uns_err *err)
{
	struct uns_arena *arena = l->arena;
	const char *path = uns_path_join(arena, l->dir, own);
	struct form_names names;
	struct dir_record *record;
	struct uns_err why = { 0 };
	struct uns_stat st;
	int code;

	UNS_TRY_ALLOC(path, err);
	code = uns_root_stat(l->u->root, path, false, &st, &why);
	if (code == 0 && !session_walks_into(l->u, path, st.kind))
		return 0;
	if (code == 0)
		code = find_record(l, path, &record, &why);
	if (code < 0)
		return code == -EACCES || code == -ESTALE ? 0 : uns_fail_if_passing(err, code, &why);
	if (forms_has_file(l->view, record))
		code = forms_names(l->u, l->view, record, arena, &names, err);
	if (code < 0 || !forms_has_file(l->view, record) ||
	    (strcmp(names.file, l->name) != 0 && strcmp(names.dir, l->name) != 0)) {
		record_put(l->u, record);
		return code;
	}
	*l->out = (struct form_found){ path, record, strcmp(names.file, l->name) == 0 };
	return 1;
}

/* The directories that may have been given the name `made`. */
static int try_made(struct lookup *l, const char *made, struct uns_err *err)
{
	struct uns_arena *arena = l->arena;
	const char *own = without(arena, made, FILE_SUFFIX);
	int found = own ? try_directory(l, own, err) : uns_arena_check(arena, err);
	size_t i;

	for (i = 0; file_suffixes[i] && !found; i++) {
		UNS_TRY_ALLOC(own = uns_arena_printf(arena, "%s%s", made, file_suffixes[i]), err);
		found = try_directory(l, own, err);
	}
	return found;
}

int forms_find(struct unshard *u, const struct uns_view *view, const char *dir, const char *name,
	       struct uns_arena *arena, struct form_found *out, struct uns_err *err)
{
	struct lookup l = { u, view, dir, name, arena, out };
	const char *path = uns_path_join(arena, dir, name), *plain;
	struct uns_err why = { 0 };
	struct uns_stat st;
	int found;

	if (!view->form)
		return 0;
	UNS_TRY_ALLOC(path, err);
	found = uns_root_stat(u->root, path, false, &st, &why);
	if (found == 0)
		return try_directory(&l, name, err);
	if (found != -EACCES)
		UNS_TRY(uns_fail_if_passing(err, found, &why));
	found = try_made(&l, name, err);
	plain = without(arena, name, TAKEN_SUFFIX);
	if (found || !plain)
		return found ? found : uns_arena_check(arena, err);
	found = try_directory(&l, plain, err);
	return found ? found : try_made(&l, plain, err);
}
