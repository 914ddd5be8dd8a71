/* unshard_warm: every CRC in the torch files of all views of a checkpoint, found out ahead of time. */
#include "base/log.h"
#include "api/caller.h"
#include "session/shows.h"

struct warming {
	struct unshard *u;
	struct caller caller;
};

static int warm_tree(struct warming *w, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		     uint64_t parameter, struct uns_err *err)
{
	struct caller_crcs crcs = { &w->caller, w->u->engine };
	const struct uns_stop stop = { caller_crcs_asked, &crcs };
	struct uns_err why = { 0 };
	const struct shown *shown;
	enum show_state state;
	size_t i;
	int code;

	code = show_state_of(w->u, record, view, parameter, &state, &why);
	if (code == 0 && state != SHOW_OK)
		return 0;
	if (code == 0)
		code = show_tree(w->u, record, snap, view, parameter, &shown, &why);
	if (code == -ENOMEM)
		return uns_oom(err);
	if (code < 0) { /* the other views are warmed all the same */
		uns_log(&w->u->log, UNS_LOG_INFO, "%s: %s: %s", record->path, view->name, why.text);
		return 0;
	}
	for (i = 0; i < shown->tree.n; i++)
		UNS_TRY(snapshots_find_crcs(&w->u->snapshots, snap, &shown->tree.v[i].layout, &stop, err));
	return 0;
}

static int warm_checkpoint(struct warming *w, const char *checkpoint, struct uns_err *err)
{
	struct snapshot *snap;
	struct dir_record *record;
	uint64_t parameter;
	size_t i, k;
	int code;

	if (!store_hold(&w->u->store, err))
		return uns_fail(err, -ENOENT,
				"warm keeps CRCs in the metadata store, and there is none: name one with --store FILE");
	store_release(&w->u->store);
	UNS_TRY(record_get(w->u, checkpoint, &record, err));
	code = record->is.format
		       ? snapshot_get(w->u, record, &snap, err)
		       : uns_fail(err, -EINVAL, "%s is not a checkpoint: list those below it with `unshard ls`",
				  checkpoint);
	if (code == 0) {
		for (i = 0; uns_views[i] && code == 0; i++)
			for (k = 0; uns_views[i]->listed[k] && code == 0; k++)
				if (uns_views[i]->parse(uns_views[i]->listed[k], &parameter))
					code = warm_tree(w, record, snap, uns_views[i], parameter, err);
		snapshot_put(w->u, snap);
	}
	record_put(w->u, record);
	return code;
}

int unshard_warm(unshard *u, const char *checkpoint, const struct unshard_calls *calls, struct unshard_error *error)
{
	struct warming w = { .u = u };
	struct uns_err err = { 0 };
	int code = caller_init(&w.caller, calls, &err);

	if (code == 0)
		code = caller_fini(&w.caller, warm_checkpoint(&w, checkpoint, &err));
	return give_error(error, &err, code);
}
