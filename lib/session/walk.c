#include "session/walk.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"

int walk_past(const struct walk *w, const char *path, const struct uns_err *why, struct uns_err *err)
{
	switch (why->code) {
	case -ENOENT:
	case -ENOTDIR:
		return 0;
	case -ENOMEM:
	case -EINTR:
	case -EMFILE:
	case -ENFILE:
		return uns_fail_copy(err, why);
	default:
		return w->unreadable ? w->unreadable(w->ctx, path, why, err) : 0;
	}
}

static int walk_dir(struct walk *w, const char *path, bool top, struct uns_err *err);

static int walk_plain(struct walk *w, struct dir_record *record, bool top, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	const char *child;
	size_t i, mark = 0;
	int code;

	if (uns_root_list(w->u->root, record->path, &arena, &list, &why) < 0)
		return top ? uns_fail_copy(err, &why) : walk_past(w, record->path, &why, err);
	code = w->enter ? w->enter(w->ctx, record, &list, &mark, err) : 0;
	for (i = 0; i < list.n && code == 0; i++) {
		UNS_TRY_ALLOC(child = uns_path_join(&arena, record->path, list.v[i].name), err);
		if (session_walks_into(w->u, child, list.v[i].kind))
			code = walk_dir(w, child, false, err);
	}
	return code == 0 && w->leave ? w->leave(w->ctx, record, mark, err) : code;
}

static int walk_dir(struct walk *w, const char *path, bool top, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code = record_get(w->u, path, &record, &why);

	if (code < 0)
		return top ? uns_fail_copy(err, &why) : walk_past(w, path, &why, err);
	w->n_checkpoints += record->is.format != NULL;
	if (w->caller && caller_scanned(w->caller, ++w->n_dirs, w->n_checkpoints))
		code = w->caller->answer;
	else if (!record->is.format)
		code = walk_plain(w, record, top, err);
	else
		code = w->checkpoint ? w->checkpoint(w->ctx, record, err) : 0;
	record_put(w->u, record);
	return code;
}

int walk_checkpoints(struct walk *w, const char *path, struct uns_err *err)
{
	return walk_dir(w, path, true, err);
}

int walk_no_checkpoint(struct unshard *u, const char *path, struct uns_err *err)
{
	const char *root = uns_root_path(u->root), *slash = *path ? "/" : "";
	struct walk w = { .u = u };
	size_t n;

	UNS_TRY(walk_checkpoints(&w, path, err));
	n = w.n_checkpoints;
	if (n)
		return uns_fail(err, -ENOENT,
				"%s%s%s is not a checkpoint, but %zu %s below it: list them with `unshard ls %s%s%s`",
				root, slash, path, n, uns_plural(n, "checkpoint is", "checkpoints are"), root, slash,
				path);
	return uns_fail(err, -ENOENT,
			"%s%s%s is not a checkpoint: no file of a format that unshard knows was found in it "
			"(FSDP, DCP, DeepSpeed, files of ranks, safetensors)",
			root, slash, path);
}
