/* What there is below SOURCE, for the command: a walk over checkpoints, and one checkpoint told. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "session/info.h"
#include "session/reasons.h"

struct walk {
	struct unshard *u;
	struct caller caller;
	size_t n_dirs, n_checkpoints;
};

/* What was found out when the checkpoint was opened. */
static void copy_facts(struct unshard *u, const struct place *place, struct unshard_checkpoint *out)
{
	pthread_mutex_lock(&u->lock);
	out->step = place->step;
	out->world_size = place->world_size;
	pthread_mutex_unlock(&u->lock);
}

static enum unshard_state state_of(struct unshard *u, const struct place *place,
				   const struct reasons *reasons)
{
	if (place_weights_change(u, place))
		return UNSHARD_SAVING;
	if (!reasons->n_serious)
		return UNSHARD_OK;
	if (reasons->moment.code)
		return UNSHARD_UNREADABLE;
	return place_saving(u, place) ? UNSHARD_SAVING : UNSHARD_DAMAGED;
}

static int hand_over(const struct walk *w, const struct unshard_checkpoint *c)
{
	return w->caller.calls.checkpoint ? w->caller.calls.checkpoint(w->caller.calls.ctx, c) : 0;
}

static int visit_checkpoint(struct walk *w, struct place *place, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text first = UNS_TEXT_INIT;
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	struct unshard_checkpoint c = { .size = sizeof(c),
					.path = place->path,
					.format = place->format->name };
	size_t i = 0;

	UNS_TRY(reasons_find(w->u, place, &reasons, err));
	c.size_bytes = place->source_bytes;
	copy_facts(w->u, place, &c);
	c.state = state_of(w->u, place, &reasons);
	while (i < reasons.n && !reasons.v[i].serious)
		i++;
	if (i < reasons.n)
		reason_print(&reasons.v[i], &first);
	if (first.failed)
		return uns_oom(err);
	c.problem = first.p;
	w->n_checkpoints++;
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
		return uns_fail_as(err, why); /* all of SOURCE */
	if (why->code == -ENOENT || why->code == -ENOTDIR)
		return 0;
	if (!f)
		return uns_fail_as(err, why);
	uns_finding_print(f, &text);
	c.problem = text.p;
	return text.failed ? uns_oom(err) : hand_over(w, &c);
}

static int walk_dir(struct walk *w, const char *path, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	struct place *place;
	const char *child;
	size_t i;
	int code;

	if (place_get(w->u, path, &place, &why) < 0)
		return visit_unreadable(w, path, &why, err);
	code = caller_scanned(&w->caller, ++w->n_dirs, w->n_checkpoints) ? w->caller.answer : 0;
	if (code == 0 && place->format)
		code = visit_checkpoint(w, place, err);
	if (place->format || code) {
		place_put(w->u, place);
		return code;
	}
	place_put(w->u, place);
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

/* The place, which must be a checkpoint. */
static int checkpoint_get(struct unshard *u, const char *path, struct place **out,
			  struct uns_err *err)
{
	UNS_TRY(place_get(u, path, out, err));
	if ((*out)->format)
		return 0;
	place_put(u, *out);
	return uns_fail(err, -ENOENT,
			"%s is not a checkpoint that unshard knows: there is no .metadata, no "
			"pytorch_model_fsdp_N, no safetensors file in it",
			*path ? path : uns_root_path(u->root));
}

int unshard_describe(unshard *u, const char *checkpoint, enum unshard_what what,
		     const char *mount_hint, char **json, struct unshard_error *error)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	const struct uns_view *view;
	struct place *place;
	uint64_t parameter;
	int code = 0;

	if (what != UNSHARD_INFO && what != UNSHARD_TENSORS && what != UNSHARD_PROVENANCE)
		code = uns_fail(&err, -EINVAL, "there is no description %d", (int)what);
	if (code == 0)
		code = checkpoint_get(u, checkpoint, &place, &err);
	if (code < 0)
		return give_error(error, &err, code);
	view = u->opt.only ? u->opt.only : view_find("weights", strlen("weights"), &parameter);
	if (u->opt.only)
		parameter = u->opt.only_parameter;
	if (what == UNSHARD_PROVENANCE)
		code = info_text(u, place, view, parameter, "provenance.json", &text, &err);
	else
		code = info_json(u, place, what == UNSHARD_TENSORS, mount_hint, &text, &err);
	place_put(u, place);
	if (code == 0 && !(*json = uns_text_take(&text, NULL)))
		code = -ENOMEM;
	return give_error(error, &err, code);
}

static int problems(struct unshard *u, struct place *place, const struct caller *caller, size_t *n,
		    struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	size_t i;
	int code = reasons_find(u, place, &reasons, err);

	if (code == 0 && reasons.moment.code)
		code = uns_fail_as(err, &reasons.moment);
	for (i = 0; i < reasons.n && code == 0; i++)
		code = finding_visit(&reasons.v[i], place->path, reasons.v[i].finding->severity, false,
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
	struct place *place;
	int code = caller_init(&caller, calls, &err);

	if (code < 0)
		return give_error(error, &err, code);
	code = checkpoint_get(u, checkpoint, &place, &err);
	if (code == 0) {
		code = problems(u, place, &caller, n, &err);
		place_put(u, place);
	}
	return give_error(error, &err, caller_fini(&caller, code));
}
