/* unshard_export: list, make the tree, write, read back, rename. */
#include "export/exporting.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static int choose_view(struct export *e, const char *name, struct uns_err *err)
{
	const struct session_options *o = &e->u->opt;

	if (!name && o->only) {
		e->view = o->only;
		e->parameter = o->only_parameter;
		e->view_name = o->only->name;
		return 0;
	}
	e->view_name = name ? name : "weights";
	e->view = view_find(e->view_name, strlen(e->view_name), &e->parameter);
	if (!e->view)
		return uns_fail(err, -ENOENT, "view %s: no such view (unshard show lists the views)", e->view_name);
	if (o->only && (o->only != e->view || o->only_parameter != e->parameter))
		return uns_fail(err, -EINVAL, "view %s: the session shows the view %s alone", e->view_name,
				o->only->name);
	return 0;
}

/* Whatever fails here leaves what was written. */
static int export_fill(struct export *e, struct uns_pool *pool, struct uns_err *err)
{
	int code = export_write(e, pool, err);

	if (code == 0 && (e->flags & UNSHARD_EXPORT_VERIFY))
		code = export_verify(e, pool, err);
	if (code == 0 && (e->flags & UNSHARD_EXPORT_CHECKSUMS))
		code = export_checksums(e, pool, err);
	if (code == 0)
		code = export_sync_tree(e, err);
	if (code == 0)
		code = uns_target_finish(&e->target, e->top_mode, err);
	if (code < 0)
		uns_fail_in(err, "the export did not end and can be resumed (--resume); %s holds what was written",
			    e->target.partial);
	return code;
}

static int export_make(struct export *e, const char *out, const char *view, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int lock = -1;
	struct uns_pool *pool;
	int code;

	UNS_TRY(choose_view(e, view, err));
	UNS_TRY(uns_target_find(&e->target, out, ".partial", e->u->real_root, e->path, err));
	UNS_TRY(export_plan(e, err));
	if ((e->flags & UNSHARD_EXPORT_CHECKSUMS) && uns_map_index(&e->by_path, EXPORT_CHECKSUMS) != UNS_MAP_NO_INDEX)
		return uns_fail(err, -EEXIST, "%s: the view has a file of that name already; leave --checksums out",
				EXPORT_CHECKSUMS);
	UNS_TRY(export_make_tree(e, &lock, err));
	UNS_TRY(uns_pool_new(UNS_THREADS_EXPORT - 1, NULL, &pool, err)); /* the caller's thread works too */
	code = export_fill(e, pool, err);
	uns_pool_free(pool);
	return code;
}

static int changes_hand_over(const struct export *e)
{
	int told = 0;
	size_t i;

	for (i = 0; told == 0 && e->caller.calls.change && i < e->n_changes; i++)
		told = e->caller.calls.change(e->caller.calls.ctx, &e->change[i]);
	return told ? told : (int)e->n_changes;
}

static void export_fini(struct export *e)
{
	size_t i;

	for (i = 0; i < e->n; i++)
		unshard_node_unref(e->entry[i].node);
	uns_map_fini(&e->by_path);
	uns_map_fini(&e->left_out);
	uns_map_fini(&e->shown);
	uns_arena_fini(&e->arena);
}

int unshard_export(unshard *u, const char *path, const char *view, const char *out, unsigned flags,
		   const struct unshard_calls *calls, struct unshard_exported *exported, struct unshard_error *error)
{
	const unsigned known =
		UNSHARD_EXPORT_RESUME | UNSHARD_EXPORT_VERIFY | UNSHARD_EXPORT_CHECKSUMS | UNSHARD_EXPORT_INCOMPLETE;
	UNS_CLEANUP(export_fini)
	struct export e = { .u = u, .path = path, .flags = flags, .made = CALLER_OWN(struct unshard_exported) };
	struct uns_err err = { 0 };
	int code = caller_flags(flags, known, &err);

	if (code == 0)
		code = caller_init(&e.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = export_make(&e, out, view, &err);
	if (code == 0)
		code = changes_hand_over(&e);
	if (code >= 0 && exported)
		code = caller_give(exported, &e.made, "exported", &err) < 0 ? err.code : code;
	return give_error(error, &err, caller_fini(&e.caller, code));
}
