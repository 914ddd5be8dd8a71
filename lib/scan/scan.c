/* unshard_scan, unshard_describe, unshard_problems: the checkpoints below SOURCE, and one of them in detail. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/pool.h"
#include "base/text.h"
#include "engine/engine.h"
#include "paths/info.h"
#include "session/reasons.h"
#include "session/shows.h"
#include "session/walk.h"

/* Checkpoints that are looked at together where each look is a request to a server. */
enum { TOGETHER = 8 };

/* A checkpoint that the walk has come to. */
struct looked {
	struct dir_record *record; /* a reference */
	struct reasons reasons;
	int code; /* of finding them */
};

struct scan {
	struct unshard *u;
	struct caller caller;
	struct looked waiting[TOGETHER]; /* to be looked at and handed over, in the order of the walk */
	size_t n_waiting;
};

static enum unshard_state state_of(const struct reasons *reasons)
{
	size_t i;

	if (reasons->saving)
		return UNSHARD_SAVING;
	if (!reasons->n_serious)
		return UNSHARD_OK;
	if (reasons->moment.code || reasons->outside)
		return UNSHARD_UNREADABLE;
	for (i = 0; i < reasons->n; i++)
		if (reasons->v[i].serious && reasons->v[i].finding->code != -ENOTSUP)
			return UNSHARD_DAMAGED;
	return UNSHARD_UNSUPPORTED;
}

static int checkpoint_hand_over(const struct scan *s, const struct unshard_checkpoint *c)
{
	return s->caller.calls.checkpoint ? s->caller.calls.checkpoint(s->caller.calls.ctx, c) : 0;
}

static int looked_hand_over(const struct scan *s, const struct looked *l, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text first = UNS_TEXT_INIT;
	const struct reasons *reasons = &l->reasons;
	const struct dir_record *record = l->record;
	struct unshard_checkpoint c = { .size = sizeof(c), .path = record->path, .format = record->is.format->name };
	size_t i = 0;

	c.size_bytes = record->is.source_bytes;
	c.state = state_of(reasons);
	pthread_mutex_lock(&s->u->lock);
	c.step = record->step;
	c.world_size = record->world_size;
	pthread_mutex_unlock(&s->u->lock);
	while (i < reasons->n && !reasons->v[i].serious && !reasons->saving)
		i++;
	if (i < reasons->n) {
		reason_print(&reasons->v[i], &first);
		c.problem_id = uns_finding_name(reasons->v[i].finding->id);
	}
	c.problem = first.p;
	return first.failed ? uns_oom(err) : checkpoint_hand_over(s, &c);
}

static int look_at(void *ctx, size_t i, struct uns_err *err)
{
	struct scan *s = ctx;
	struct looked *l = &s->waiting[i];

	(void)err;
	l->code = reasons_find(s->u, l->record, &l->reasons, NULL);
	return 0;
}

/* If the walk has ended with a failure, none is handed over. */
static int hand_over_waiting(struct scan *s, int code, struct uns_err *err)
{
	size_t i;

	if (code == 0 && s->n_waiting)
		code = uns_pool_each(uns_engine_pool(s->u->engine), s->n_waiting, look_at, s, err);
	for (i = 0; i < s->n_waiting; i++) {
		if (code == 0)
			code = s->waiting[i].code < 0 ? uns_oom(err) : looked_hand_over(s, &s->waiting[i], err);
		reasons_fini(&s->waiting[i].reasons);
		record_put(s->u, s->waiting[i].record);
	}
	s->n_waiting = 0;
	return code;
}

static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	struct scan *s = ctx;
	const size_t most = session_is_remote(s->u) ? TOGETHER : 1;

	show_handed_over(s->u, record);
	record_ref(s->u, record);
	s->waiting[s->n_waiting++] = (struct looked){ .record = record };
	return s->n_waiting == most ? hand_over_waiting(s, 0, err) : 0;
}

/* A directory of which no more is known than a state and a finding. */
static int directory_hand_over(struct scan *s, const char *path, enum unshard_state state, const struct uns_finding *f,
			       struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct unshard_checkpoint c = { .size = sizeof(c), .path = path, .step = -1, .world_size = -1, .state = state };

	UNS_TRY(hand_over_waiting(s, 0, err));
	uns_finding_print(f, &text);
	c.problem = text.p;
	c.problem_id = uns_finding_name(f->id);
	return text.failed ? uns_oom(err) : checkpoint_hand_over(s, &c);
}

/* A save, or a copy, that has only begun is shown: no file shows yet what it will be. */
static int visit_plain(void *ctx, struct dir_record *record, const struct uns_listing *list, size_t *mark,
		       struct uns_err *err)
{
	struct scan *s = ctx;
	const struct uns_finding f = show_saving(s->u, record, NULL);

	(void)list;
	(void)mark;
	return records_in_the_making(&s->u->records, record)
		       ? directory_hand_over(s, record->path, UNSHARD_SAVING, &f, err)
		       : 0;
}

static int visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	struct scan *s = ctx;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_finding *f;

	UNS_TRY_ALLOC(f = reason_of_directory(path, s->u, why, &arena), err);
	return directory_hand_over(s, path, UNSHARD_UNREADABLE, f, err);
}

int unshard_scan(unshard *u, const struct unshard_calls *calls, struct unshard_error *error)
{
	struct scan s = { .u = u };
	struct walk w = { .u = u,
			  .ctx = &s,
			  .caller = &s.caller,
			  .checkpoint = visit_checkpoint,
			  .enter = visit_plain,
			  .unreadable = visit_unreadable };
	struct uns_err err = { 0 };
	int code = caller_init(&s.caller, calls, &err);

	if (code == 0)
		code = caller_fini(&s.caller, hand_over_waiting(&s, walk_checkpoints(&w, "", &err), &err));
	return give_error(error, &err, code);
}

/* The record, which must be a checkpoint. */
static int checkpoint_get(struct unshard *u, const char *path, struct dir_record **out, struct uns_err *err)
{
	struct uns_finding f;
	bool begun;

	UNS_TRY(record_get_for(u, path, u->opt.only, u->opt.only_parameter, out, err));
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
	return begun ? -ENOENT : walk_no_checkpoint(u, path, err);
}

int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what, const char *mount_hint, char **json,
		     struct unshard_error *error)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_view *view;
	struct dir_record *record;
	uint64_t parameter;
	int code = 0;

	if (what != UNSHARD_INFO && what != UNSHARD_TENSORS && what != UNSHARD_PROVENANCE && what != UNSHARD_MAP &&
	    what != UNSHARD_VIEW_MAP)
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
	else if (what == UNSHARD_VIEW_MAP)
		code = info_view_map(u, record, view, parameter, &text, &err);
	else
		code = info_json(u, record, what, mount_hint, &text, &err);
	record_put(u, record);
	if (code == 0 && !(*json = uns_text_take(&text, NULL)))
		code = uns_oom(&err);
	return give_error(error, &err, code);
}

static int problems_visit(struct unshard *u, struct dir_record *record, const struct caller *caller, size_t *n,
			  struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	size_t i;
	int code = reasons_find(u, record, &reasons, err);

	if (code == 0 && reasons.moment.code)
		code = uns_fail_copy(err, &reasons.moment);
	for (i = 0; i < reasons.n && code == 0; i++)
		code = finding_visit(&reasons.v[i], record->path, reasons.v[i].finding->severity, false, caller);
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
		code = problems_visit(u, record, &caller, n, &err);
		record_put(u, record);
	}
	return give_error(error, &err, caller_fini(&caller, code));
}
