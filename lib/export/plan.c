/* Everything that the tree has at VIEW/path, by way of its nodes, and what the view cannot show. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "export/exporting.h"
#include "paths/forms.h"
#include "paths/nodes.h"
#include "session/shows.h"
#include "session/walk.h"
#include "session/wholes.h"

enum { MAX_DEPTH = 64 };

static void free_listing(unshard_listing **listing)
{
	unshard_listing_free(*listing);
}

static void unref_node(unshard_node **node)
{
	unshard_node_unref(*node);
}

/* -- what is left out -- */

static int leave_out(struct export *e, const char *path, enum unshard_change_kind kind, const char *why,
		     struct uns_err *err)
{
	const char *copy = uns_arena_str(&e->arena, path), *text = uns_arena_str(&e->arena, why);

	if (!copy || !text || !UNS_ARENA_ROOM(&e->arena, e->change, e->n_changes, e->cap_changes) ||
	    !uns_map_put(&e->left_out, copy, (void *)copy, NULL))
		return uns_oom(err);
	e->change[e->n_changes++] = (struct unshard_change){ sizeof(struct unshard_change), copy, kind, text };
	return 0;
}

static int visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	return leave_out(ctx, path, UNSHARD_CHANGE_UNREADABLE, why->text, err);
}

/* Exporters elsewhere have dropped whole layers and written an index that fits the rest. Fails with the first finding.
 * An adapter is a part by design. */
static int check_whole_model(struct export *e, struct dir_record *record, struct snapshot *snap, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_findings found = { 0 };
	size_t i;

	if (e->flags & UNSHARD_EXPORT_INCOMPLETE || strcmp(e->view->name, "adapter") == 0)
		return 0;
	UNS_TRY(wholes_find(e->u, record, snap, &arena, &found, why));
	for (i = 0; i < found.n && found.v[i].scope == UNS_SCOPE_NOTE; i++)
		;
	if (i == found.n)
		return 0;
	if (!found.v[i].checkpoint)
		found.v[i].checkpoint = record->path;
	uns_finding_print(&found.v[i], &text);
	return text.failed ? uns_oom(why)
			   : uns_fail(why, -ENODATA,
				      "the model is not whole: %s; `unshard check` lists all that is missing, "
				      "and --no-base exports it as it is",
				      text.p);
}

static int judge_checkpoint(struct export *e, const char *path, struct uns_err *err)
{
	const struct shown *shown;
	struct dir_record *record;
	struct snapshot *snap;
	int code;

	UNS_TRY(record_get_for(e->u, path, e->view, e->parameter, &record, err));
	code = snapshot_get(e->u, record, &snap, err);
	if (code == 0) {
		code = show_served(e->u, record, snap, e->view, e->parameter, &shown, err);
		if (code == 0)
			code = check_whole_model(e, record, snap, err);
		snapshot_put(e->u, snap);
	}
	record_put(e->u, record);
	return code;
}

/* What the view cannot show of the directory's checkpoints is left out: its tree does not list them. If the directory
 * is itself a checkpoint, that is why there is no export. */
static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	struct export *e = ctx;
	const struct walk others = { .u = e->u, .ctx = e, .unreadable = visit_unreadable };
	struct uns_err why = { 0 };
	const char *path;
	int code = judge_checkpoint(e, record->path, &why);

	if (code == 0) { /* check_each_has_files asks for its files */
		e->made.checkpoints++;
		path = uns_arena_str(&e->arena, record->path);
		return path && uns_map_put(&e->shown, path, (void *)"", NULL) ? 0 : uns_oom(err);
	}
	if (strcmp(record->path, e->path) == 0)
		return uns_fail(err, code, "%s", why.text);
	if (code == -ENOTSUP || code == -ENODATA || code == -EBADMSG)
		return leave_out(e, record->path, UNSHARD_CHANGE_LEFT_OUT, why.text, err);
	return walk_past(&others, record->path, &why, err);
}

static int visit_plain(void *ctx, struct dir_record *record, const struct uns_listing *list, size_t *mark,
		       struct uns_err *err)
{
	struct export *e = ctx;

	(void)list;
	(void)mark;
	if (!records_in_the_making(&e->u->records, record) || strcmp(record->path, e->path) == 0)
		return 0;
	return leave_out(e, record->path, UNSHARD_CHANGE_LEFT_OUT,
			 "something in it changed a moment ago, and it may become a checkpoint (-o settle=)", err);
}

/* -- what OUT has -- */

static int add_entry(struct export *e, const struct export_entry *entry, struct uns_err *err)
{
	if (e->n >= UNS_MAP_NO_INDEX || !UNS_ARENA_ROOM(&e->arena, e->entry, e->n, e->cap) ||
	    !uns_map_put_index(&e->by_path, entry->path, (uint32_t)e->n))
		return uns_oom(err);
	e->entry[e->n++] = *entry;
	return 0;
}

/* The checkpoint that the file belongs to, if it belongs to one, has a file. */
static int count_for_checkpoint(struct export *e, const char *path, const unshard_node *node, struct uns_err *err)
{
	const char *checkpoint;
	struct spot spot;
	bool kept = true;

	UNS_TRY(node_spot(node, LOOK_FULL, &spot, NULL, err));
	checkpoint = spot.key.kind == SPOT_SHOWN ? uns_map_get(&e->shown, spot.key.path) : NULL;
	if (checkpoint && !*checkpoint)
		kept = uns_map_put(&e->shown, uns_arena_str(&e->arena, spot.key.path), (void *)path, NULL);
	spot_fini(e->u, &spot);
	return kept ? 0 : uns_oom(err);
}

static int add_file(struct export *e, const char *path, unshard_node *node, struct uns_err *err)
{
	struct export_entry file = { .path = path, .kind = EXPORT_FILE, .stat = { UNSHARD_STAT_INIT } };
	struct unshard_error why = { 0 };
	int code = unshard_node_stat(node, &file.stat, &why);

	if (code < 0)
		return export_fail(err, code, &why);
	UNS_TRY(add_entry(e, &file, err));
	UNS_TRY(count_for_checkpoint(e, path, node, err));
	e->entry[e->n - 1].node = unshard_node_ref(node);
	e->made.files++;
	e->made.size_bytes += file.stat.size_bytes;
	return 0;
}

/* The node of what a path of the tree names. */
static int find_node(struct unshard *u, const char *tree_path, unshard_node **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(unref_node) unshard_node *at = NULL;
	struct unshard_error why = { 0 };
	unshard_node *next;
	const char *name;
	size_t n;
	int code = unshard_root(u, &at, &why);

	for (; code == 0 && *tree_path; tree_path += n + (tree_path[n] == '/')) {
		n = strcspn(tree_path, "/");
		if (!n)
			continue;
		UNS_TRY_ALLOC(name = uns_arena_strn(&arena, tree_path, n), err);
		code = unshard_lookup(at, name, &next, NULL, &why);
		if (code == 0) {
			unshard_node_unref(at);
			at = next;
		}
	}
	if (code < 0)
		return export_fail(err, code, &why);
	*out = UNS_TAKE(at);
	return 0;
}

static const char *top_of_tree(const struct export *e, struct uns_arena *arena)
{
	return uns_path_join(arena, e->u->opt.only ? "" : e->view_name, e->shown_at);
}

/* A link is one again if what it leads to is exported too; else it is the file that it leads to. */
static int add_link(struct export *e, const char *path, unshard_node *node, struct uns_err *err)
{
	UNS_CLEANUP(unref_node) unshard_node *there = NULL;
	struct export_entry link = { .path = path, .kind = EXPORT_LINK };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error why = { 0 };
	const char *from = unshard_node_path(node), *to;
	char *target;
	int code = unshard_node_readlink(node, &target, &why);

	if (code < 0)
		return export_fail(err, code, &why);
	link.target = uns_arena_str(&e->arena, target);
	unshard_free(target);
	UNS_TRY_ALLOC(link.target, err);
	to = uns_path_resolve(&e->arena, uns_path_parent(&e->arena, from), link.target);
	if (to && !uns_path_within(to, top_of_tree(e, &e->arena))) {
		if (find_node(e->u, to, &there, NULL) == 0 && unshard_node_stat(there, &st, NULL) == 0 &&
		    st.kind == UNSHARD_FILE)
			return add_file(e, path, there, err);
		return leave_out(e, from, UNSHARD_CHANGE_LEFT_OUT,
				 "it is a link to something that is not exported and is not a file", err);
	}
	return add_entry(e, &link, err);
}

static int add_dir(struct export *e, const char *path, unshard_node *node, uint32_t mode, int depth,
		   struct uns_err *err);

/* 1 = it belongs to a checkpoint that is left out. */
static int is_left_out(struct export *e, const unshard_node *node, struct uns_err *err)
{
	struct spot spot;
	int found;

	if (!e->left_out.n)
		return 0;
	UNS_TRY(node_spot(node, LOOK_FULL, &spot, NULL, err));
	found = spot.key.kind == SPOT_SHOWN && uns_map_get(&e->left_out, spot.key.path);
	spot_fini(e->u, &spot);
	return found;
}

static int add_child(struct export *e, const char *dir, const unshard_listing *list, size_t i, int depth,
		     struct uns_err *err)
{
	const struct unshard_dirent *d = unshard_listing_at(list, i);
	UNS_CLEANUP(unref_node) unshard_node *node = NULL;
	const char *path = uns_path_join(&e->arena, dir, d->name);
	struct unshard_error why = { 0 };
	int code = unshard_listing_node(list, i, &node, &why);

	if (code < 0)
		return export_fail(err, code, &why);
	UNS_TRY_ALLOC(path, err);
	UNS_TRY(code = is_left_out(e, node, err));
	if (code)
		return 0;
	if (d->stat.kind == UNSHARD_DIR)
		return add_dir(e, path, node, d->stat.mode, depth + 1, err);
	return (d->stat.kind == UNSHARD_LINK ? add_link : add_file)(e, path, node, err);
}

static int add_dir(struct export *e, const char *path, unshard_node *node, uint32_t mode, int depth,
		   struct uns_err *err)
{
	UNS_CLEANUP(free_listing) unshard_listing *list = NULL;
	struct unshard_error why = { 0 };
	size_t i;
	int code;

	if (depth > MAX_DEPTH)
		return uns_fail(err, -ELOOP, "%s: directories too deep", unshard_node_path(node));
	if (caller_scanned(&e->caller, e->n, e->made.checkpoints))
		return uns_fail(err, -EINTR, "interrupted");
	code = unshard_node_list(node, &list, &why);
	if (code < 0)
		return export_fail(err, code, &why);
	if (*path)
		UNS_TRY(add_entry(e, &(struct export_entry){ .path = path, .kind = EXPORT_DIR, .stat.mode = mode },
				  err));
	else
		e->top_mode = mode;
	for (i = 0; i < unshard_listing_count(list); i++)
		UNS_TRY(add_child(e, path, list, i, depth, err));
	return 0;
}

/* -- the top -- */

/* Of a checkpoint that the view shows as a file and as a directory, the directory is exported. The view's name of
 * either may be another than SOURCE's. */
static int choose_form(struct export *e, const struct dir_record *record, struct uns_err *err)
{
	struct form_names names;

	if (!forms_has_file(e->view, record))
		return 0;
	UNS_TRY(forms_names(e->u, e->view, record, &e->arena, &names, err));
	e->shown_at = uns_path_join(&e->arena, uns_path_parent(&e->arena, e->path),
				    names.dir_is_listed ? names.dir : names.file);
	return e->shown_at ? 0 : uns_oom(err);
}

/* Finds what the view shows of the checkpoints at and below the directory. */
static int judge_checkpoints(struct export *e, struct uns_err *err)
{
	struct walk walk = { .u = e->u,
			     .ctx = e,
			     .caller = &e->caller,
			     .checkpoint = visit_checkpoint,
			     .enter = visit_plain,
			     .unreadable = visit_unreadable };
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code = record_get(e->u, e->path, &record, &why);

	if (code == -ENOENT || code == -ENOTDIR)
		return 0; /* it may be the name of a view's one file */
	if (code < 0)
		return uns_fail(err, code, "%s", why.text);
	code = walk_checkpoints(&walk, e->path, err);
	if (record->is.format && code == 0)
		code = choose_form(e, record, err);
	record_put(e->u, record);
	if (code > 0)
		return uns_fail(err, -EINTR, "interrupted");
	return code;
}

/* An export that ends well has all that the view shows. */
static int check_each_has_files(const struct export *e, struct uns_err *err)
{
	const char *checkpoint;
	void *first_file;
	size_t at = 0;

	while (uns_map_next(&e->shown, &at, &checkpoint, &first_file))
		if (!*(const char *)first_file)
			return uns_fail(
				err, -ENODATA,
				"%s: the view %s shows this checkpoint, and no file of it was found there: nothing "
				"was written",
				*checkpoint ? checkpoint : uns_root_path(e->u->root), e->view_name);
	return 0;
}

int export_plan(struct export *e, struct uns_err *err)
{
	UNS_CLEANUP(unref_node) unshard_node *top = NULL;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error why = { 0 };
	const char *tree_path;
	int code;

	e->shown_at = e->path;
	UNS_TRY(judge_checkpoints(e, err));
	UNS_TRY_ALLOC(tree_path = top_of_tree(e, &e->arena), err);
	UNS_TRY(find_node(e->u, tree_path, &top, err));
	code = unshard_node_stat(top, &st, &why);
	if (code < 0)
		return export_fail(err, code, &why);
	if (st.kind != UNSHARD_DIR) {
		e->made.checkpoints = 1; /* a view's one file may have a name that is not its checkpoint's */
		e->top_mode =
			st.mode | (st.mode & 0444) >> 2; /* users that may read the file may look into its directory */
		return add_file(e, uns_path_name(e->shown_at), top, err);
	}
	UNS_TRY(add_dir(e, "", top, st.mode, 0, err));
	if (!e->made.checkpoints)
		return uns_fail(
			err, -ENODATA,
			"%s: the view %s can show no checkpoint in it%s%s: unshard ls lists checkpoints and what "
			"is wrong with each, unshard show CHECKPOINT its views",
			*e->path ? e->path : uns_root_path(e->u->root), e->view_name, e->n_changes ? ": " : "",
			e->n_changes ? e->change[0].text : "");
	return check_each_has_files(e, err);
}
