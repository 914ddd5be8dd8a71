/* What there is below SOURCE, for the command: a walk over checkpoints, and one checkpoint told. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "paths/info.h"
#include "session/reasons.h"
#include "session/shows.h"

struct walk {
	struct unshard *u;
	struct caller caller;
	size_t n_dirs, n_checkpoints;
	bool only_count; /* nothing is opened, or told */
};

/* What was found out when the checkpoint was opened. */
static void copy_facts(struct unshard *u, const struct dir_record *record, struct unshard_checkpoint *out)
{
	pthread_mutex_lock(&u->lock);
	out->step = record->step;
	out->world_size = record->world_size;
	pthread_mutex_unlock(&u->lock);
}

static bool is_damaged(const struct reasons *reasons)
{
	size_t i;

	for (i = 0; i < reasons->n; i++)
		if (reasons->v[i].serious && reasons->v[i].finding->code != -ENOTSUP)
			return true;
	return false;
}

static enum unshard_state state_of(const struct reasons *reasons)
{
	if (reasons->saving)
		return UNSHARD_SAVING;
	if (!reasons->n_serious)
		return UNSHARD_OK;
	if (reasons->moment.code)
		return UNSHARD_UNREADABLE;
	return is_damaged(reasons) ? UNSHARD_DAMAGED : UNSHARD_UNSUPPORTED;
}

static int hand_over(const struct walk *w, const struct unshard_checkpoint *c)
{
	return w->caller.calls.checkpoint ? w->caller.calls.checkpoint(w->caller.calls.ctx, c) : 0;
}

static int visit_checkpoint(struct walk *w, struct dir_record *record, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text first = UNS_TEXT_INIT;
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	struct unshard_checkpoint c = { .size = sizeof(c),
					.path = record->path,
					.format = record->is.format->name };
	size_t i = 0;

	show_handed_over(w->u, record);
	UNS_TRY(reasons_find(w->u, record, &reasons, err));
	c.size_bytes = record->is.source_bytes;
	c.state = state_of(&reasons);
	copy_facts(w->u, record, &c);
	while (i < reasons.n && !reasons.v[i].serious && !reasons.saving)
		i++;
	if (i < reasons.n)
		reason_print(&reasons.v[i], &first);
	if (first.failed)
		return uns_oom(err);
	c.problem = first.p;
	return hand_over(w, &c);
}

/* Shown as "unreadable", and the walk goes on. One that was deleted meanwhile is not shown. */
static int visit_unreadable(struct walk *w, const char *path, const struct uns_err *why,
			    struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct unshard_checkpoint c = { .size = sizeof(c), .path = path, .step = -1, .world_size = -1,
					.state = UNSHARD_UNREADABLE };
	const struct uns_finding *f = reason_of_directory(path, w->u, why, &arena);

	if (!*path)
		return uns_fail_copy(err, why); /* all of SOURCE */
	if (why->code == -ENOENT || why->code == -ENOTDIR)
		return 0;
	if (!f)
		return uns_fail_copy(err, why);
	uns_finding_print(f, &text);
	c.problem = text.p;
	return text.failed ? uns_oom(err) : hand_over(w, &c);
}

/* A save, or a copy, that has only begun: no file says yet what it will be. */
static int visit_begun(struct walk *w, const struct dir_record *record, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const struct uns_finding f = show_saving(w->u, record, NULL);
	struct unshard_checkpoint c = { .size = sizeof(c), .path = record->path, .step = -1, .world_size = -1,
					.state = UNSHARD_SAVING };

	uns_finding_print(&f, &text);
	c.problem = text.p;
	return text.failed ? uns_oom(err) : hand_over(w, &c);
}

static int walk_dir(struct walk *w, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	struct dir_record *record;
	const char *child;
	bool leaf;
	size_t i;
	int code;

	if (record_get(w->u, path, &record, &why) < 0)
		return visit_unreadable(w, path, &why, err);
	w->n_checkpoints += record->is.format != NULL;
	code = caller_scanned(&w->caller, ++w->n_dirs, w->n_checkpoints) ? w->caller.answer : 0;
	if (code == 0 && record->is.format && !w->only_count)
		code = visit_checkpoint(w, record, err);
	else if (code == 0 && !w->only_count && records_in_the_making(&w->u->records, record))
		code = visit_begun(w, record, err);
	leaf = record->is.format || code;
	record_put(w->u, record);
	if (leaf)
		return code;
	if (uns_root_list(w->u->root, path, &arena, &list, &why) < 0)
		return visit_unreadable(w, path, &why, err);
	for (i = 0; i < list.n && code == 0; i++) {
		child = uns_path_join(&arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
		if (session_walks_into(w->u, child, list.v[i].kind))
			code = walk_dir(w, child, err);
	}
	return code;
}

int unshard_scan(unshard *u, const struct unshard_calls *calls, struct unshard_error *error)
{
	struct walk w = { .u = u };
	struct uns_err err = { 0 };
	int code = caller_init(&w.caller, calls, &err);

	if (code == 0)
		code = caller_fini(&w.caller, walk_dir(&w, "", &err));
	return give_error(error, &err, code);
}

static int count_below(struct unshard *u, const char *path, size_t *n, struct uns_err *err)
{
	struct walk w = { .u = u, .only_count = true };

	UNS_TRY(walk_dir(&w, path, err));
	*n = w.n_checkpoints;
	return 0;
}

static int not_a_checkpoint(struct unshard *u, const char *path, struct uns_err *err)
{
	const char *root = uns_root_path(u->root), *slash = *path ? "/" : "";
	size_t n;

	UNS_TRY(count_below(u, path, &n, err));
	if (n)
		return uns_fail(err, -ENOENT,
				"%s%s%s is not a checkpoint, but %zu %s below it: list them with "
				"`unshard ls %s%s%s`",
				root, slash, path, n, uns_plural(n, "checkpoint is", "checkpoints are"), root, slash, path);
	return uns_fail(err, -ENOENT,
			"%s%s%s is not a checkpoint: no file of a format that unshard knows was found in it "
			"(FSDP, DCP, DeepSpeed, files of ranks, safetensors)",
			root, slash, path);
}

/* The record, which must be a checkpoint. */
static int checkpoint_get(struct unshard *u, const char *path, struct dir_record **out,
			  struct uns_err *err)
{
	struct uns_finding f;
	bool begun;

	UNS_TRY(record_get(u, path, out, err));
	if ((*out)->is.format) {
		show_handed_over(u, *out);
		return 0;
	}
	begun = records_in_the_making(&u->records, *out);
	f = show_saving(u, *out, NULL);
	f.code = -ENOENT;
	if (begun)
		uns_fail_with(err, &f);
	record_put(u, *out);
	return begun ? -ENOENT : not_a_checkpoint(u, path, err);
}

int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what,
		     const char *mount_hint, char **json, struct unshard_error *error)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_view *view;
	struct dir_record *record;
	uint64_t parameter;
	int code = 0;

	if (what != UNSHARD_INFO && what != UNSHARD_TENSORS && what != UNSHARD_PROVENANCE)
		code = uns_fail(&err, -EINVAL, "description %d does not exist", (int)what);
	if (code == 0)
		code = checkpoint_get(u, checkpoint, &record, &err);
	if (code < 0)
		return give_error(error, &err, code);
	view = u->opt.only ? u->opt.only : view_find("weights", strlen("weights"), &parameter);
	if (u->opt.only)
		parameter = u->opt.only_parameter;
	if (what == UNSHARD_PROVENANCE)
		code = info_text(u, record, view, parameter, "provenance.json", &text, &err);
	else
		code = info_json(u, record, what == UNSHARD_TENSORS, mount_hint, &text, &err);
	record_put(u, record);
	if (code == 0 && !(*json = uns_text_take(&text, NULL)))
		code = uns_oom(&err);
	return give_error(error, &err, code);
}

static int problems(struct unshard *u, struct dir_record *record, const struct caller *caller, size_t *n,
		    struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	size_t i;
	int code = reasons_find(u, record, &reasons, err);

	if (code == 0 && reasons.moment.code)
		code = uns_fail_copy(err, &reasons.moment);
	for (i = 0; i < reasons.n && code == 0; i++)
		code = finding_visit(&reasons.v[i], record->path, reasons.v[i].finding->severity, false,
				     caller);
	if (n)
		*n = reasons.n_serious;
	return code;
}

int unshard_problems(unshard *u, const char *checkpoint, const struct unshard_calls *calls, size_t *n,
		     struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct caller caller;
	struct dir_record *record;
	int code = caller_init(&caller, calls, &err);

	if (code < 0)
		return give_error(error, &err, code);
	code = checkpoint_get(u, checkpoint, &record, &err);
	if (code == 0) {
		code = problems(u, record, &caller, n, &err);
		record_put(u, record);
	}
	return give_error(error, &err, caller_fini(&caller, code));
}
