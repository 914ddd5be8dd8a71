/* One view of one checkpoint: can it be served, is it still being saved, and the tree when it can. */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/path.h"

#define PROBLEM_FILE "UNSHARD_PROBLEM.txt"

const char *show_state_text(enum show_state state)
{
	static const char *const text[] = { "ok", "saving", "damaged", "none" };

	return text[state];
}

/* -- verdicts: what supports() said, kept with the place -- */

static const struct verdict *verdict_find(const struct place *place, const struct uns_view *view,
					  uint64_t parameter)
{
	const struct verdict *v = place->verdict;

	while (v && (v->view != view || v->parameter != parameter))
		v = v->next;
	return v;
}

static int verdict_add(struct place *place, const struct uns_view *view, uint64_t parameter,
		       int code, const struct uns_finding *why)
{
	struct verdict *v = calloc(1, sizeof(*v));

	if (!v || (code < 0 && !(v->why = uns_finding_dup(why)))) {
		free(v);
		return -ENOMEM;
	}
	v->view = view;
	v->parameter = parameter;
	v->code = code;
	v->next = place->verdict;
	place->verdict = v;
	return 0;
}

/* The recorded answer as a code and its reason; false when nothing is recorded. Lock taken here. */
static bool verdict_known(struct unshard *u, struct place *place, const struct uns_view *view,
			  uint64_t parameter, int *code, struct uns_err *why)
{
	const struct uns_finding *f;
	const struct verdict *v;

	pthread_mutex_lock(&u->lock);
	v = verdict_find(place, view, parameter);
	f = v ? v->why : place->open_why;
	*code = v ? v->code : f ? f->code : 0;
	if (f)
		uns_fail_with(why, f);
	pthread_mutex_unlock(&u->lock);
	return v || f;
}

static int verdict_find_out(struct unshard *u, struct place *place, const struct uns_view *view,
			    uint64_t parameter, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err own = { .keep = &arena };
	struct uns_finding f;
	struct snapshot *snap;
	int code, added = 0;

	UNS_TRY(snapshot_get(u, place, &snap, why));
	code = view->supports(snap->cat, parameter, &own);
	f = uns_finding_of_err(&own, UNS_SCOPE_NOTE);
	if (own.finding)
		f.scope = own.finding->scope;
	else
		f.id = UNS_FOUND_VIEW_NOT_POSSIBLE;
	if (!f.checkpoint)
		f.checkpoint = place->path;
	pthread_mutex_lock(&u->lock);
	if (snap->place == place && (code == 0 || uns_code_is_finding(code)) &&
	    !verdict_find(place, view, parameter))
		added = verdict_add(place, view, parameter, code, &f);
	pthread_mutex_unlock(&u->lock);
	snapshot_put(u, snap);
	if (added < 0)
		return uns_oom(why);
	if (code < 0)
		uns_fail_with(why, &f);
	return code;
}

/* Once for each state of the files: every view and every look finds the same. */
static void log_damage(struct unshard *u, struct place *place, const char *why)
{
	bool told;

	pthread_mutex_lock(&u->lock);
	told = place->told;
	place->told = true;
	pthread_mutex_unlock(&u->lock);
	if (!told)
		uns_log(UNS_LOG_WARN, "%s: %s", place->path, why);
}

static bool is_finished(struct unshard *u, const struct place *place)
{
	bool finished;

	pthread_mutex_lock(&u->lock);
	finished = place->finished;
	pthread_mutex_unlock(&u->lock);
	return finished;
}

/* Failures that a writer still at work explains. */
static bool may_be_unfinished(int code)
{
	return code == -ENODATA || code == -EBADMSG || code == -ENOENT || code == -ESTALE;
}

static int still_saving(const struct unshard *u, const struct place *place, struct uns_err *why)
{
	return uns_fail_with(why, UNS_FINDING(.id = UNS_FOUND_SAVE_GOING_ON, .checkpoint = place->path,
					      .expected = uns_num((uint64_t)u->settle_ns / 1000000000)));
}

int show_state_of(struct unshard *u, struct place *place, const struct uns_view *view,
		  uint64_t parameter, enum show_state *out, struct uns_err *why)
{
	bool unfinished;
	int code;

	if (!verdict_known(u, place, view, parameter, &code, why))
		code = verdict_find_out(u, place, view, parameter, why);
	unfinished = !is_finished(u, place) && place_unsettled(u, place);
	if (code == -ENOTSUP)
		*out = SHOW_NONE;
	else if (may_be_unfinished(code) && unfinished)
		*out = SHOW_SAVING;
	else if (code < 0 && !uns_code_is_finding(code))
		return code;
	else
		*out = code < 0 ? SHOW_DAMAGED : SHOW_OK;
	if (*out == SHOW_DAMAGED)
		log_damage(u, place, why->text);
	if (*out == SHOW_OK && view->needs_finished && unfinished) {
		*out = SHOW_SAVING;
		still_saving(u, place, why);
	}
	return 0;
}

/* -- trees -- */

static void vattr_of(const struct uns_catalog *cat, const struct uns_vfile *file,
		     const struct place *place, struct vattr *out)
{
	const struct uns_layout *l = &file->layout;
	const struct uns_piece *piece;
	const struct uns_stat *st;
	size_t i, k, n;

	out->mode = place->stat.mode & 0444;
	out->mtime_ns = place->stat.id.mtime_ns;
	if (file->source != UNS_NONE)
		*out = (struct vattr){ cat->files[file->source].stat.mode & 0555,
				       cat->files[file->source].stat.id.mtime_ns };
	for (i = 0; i < l->n && file->source == UNS_NONE; i++) {
		if (l->segment[i].from != UNS_FROM_PIECES)
			continue;
		piece = uns_segment_pieces(l, &l->segment[i], &n);
		for (k = 0; k < n; k++) {
			st = &cat->files[piece[k].file].stat;
			out->mode &= st->mode;
			if (st->id.mtime_ns > out->mtime_ns)
				out->mtime_ns = st->id.mtime_ns;
		}
	}
}

static void shown_free(struct shown *shown)
{
	if (!shown)
		return;
	uns_vtree_fini(&shown->tree);
	free(shown->attr);
	free(shown);
}

static int problem_tree(struct shown *shown, const struct place *place, const struct uns_err *why,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;

	uns_text_printf(&text, "unshard cannot serve %s here.\n\n",
			*place->path ? place->path : "this checkpoint");
	if (why->finding)
		uns_finding_print(why->finding, &text);
	else
		uns_text_str(&text, why->text);
	uns_text_str(&text, "\n\nRun `unshard show CHECKPOINT` on the source for all that is known "
			    "about it.\n");
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_add_text(&shown->tree, PROBLEM_FILE, text.p, text.len,
				  "synthesised: why this checkpoint cannot be served", err);
}

static int view_tree(struct unshard *u, const struct place *place, struct snapshot *snap,
		     struct shown *shown, struct uns_err *err)
{
	struct uns_view_input in = { .catalog = snap->cat };

	if (shown->view->needs_companions && !snap->ties_proven) {
		UNS_TRY(ties_prove(snap, err));
		snap->ties_proven = true;
	}
	if (shown->view->needs_training && !snap->training_known) {
		UNS_TRY(training_collect(u, snap, place->path, err));
		snap->training_known = true;
	}
	in.training = snap->has_training ? &snap->training : NULL;
	in.trainer_state_valid = snap->trainer_state_valid;
	in.hide_rng = u->opt.hide_rng;
	in.keep_rng = u->opt.keep_rng;
	in.borrowed = snap->borrowed;
	in.n_borrowed = snap->n_borrowed;
	in.config = snap->config;
	in.tied = snap->tied;
	in.n_tied = snap->n_tied;
	in.notes = snap->note;
	in.n_notes = snap->n_notes;
	in.max_shard_size_bytes = u->opt.max_shard_size_bytes;
	in.strip = u->opt.strip;
	return shown->view->tree(&in, shown->parameter, &shown->tree, err);
}

/* What a view finds out only while it makes its tree (a fact about the training that nobody knows) is
 * told in the same way as damage; what may pass (memory, a source that changes) fails the request. */
static int tree_or_problem(struct unshard *u, struct place *place, struct snapshot *snap,
			   struct shown *shown, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	int code = view_tree(u, place, snap, shown, &why);

	if (code == -ENODATA || code == -ENOTSUP || code == -EBADMSG) {
		uns_vtree_fini(&shown->tree);
		return problem_tree(shown, place, &why, err);
	}
	return code < 0 ? uns_fail(err, code, "%s", why.text) : 0;
}

static int shown_build(struct unshard *u, struct place *place, struct snapshot *snap,
		       struct shown *shown, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	enum show_state state;
	size_t i;

	if (show_state_of(u, place, shown->view, shown->parameter, &state, &why) < 0)
		return uns_fail(err, why.code, "%s", why.text);
	if (state == SHOW_OK)
		UNS_TRY(tree_or_problem(u, place, snap, shown, err));
	else if (state == SHOW_DAMAGED)
		UNS_TRY(problem_tree(shown, place, &why, err));
	else
		return uns_fail(err, -ENOENT, "%s", why.text);
	uns_vtree_seal(&shown->tree);
	shown->attr = calloc(shown->tree.n + 1, sizeof(*shown->attr));
	if (!shown->attr)
		return uns_oom(err);
	for (i = 0; i < shown->tree.n; i++)
		vattr_of(snap->cat, &shown->tree.v[i], place, &shown->attr[i]);
	if (shown->tree.whole)
		vattr_of(snap->cat, shown->tree.whole, place, &shown->attr[i]);
	return 0;
}

static struct shown *shown_find(const struct snapshot *snap, const struct uns_view *view,
				uint64_t parameter)
{
	struct shown *s = snap->shown;

	while (s && (s->view != view || s->parameter != parameter))
		s = s->next;
	return s;
}

static int shown_make(struct unshard *u, struct place *place, struct snapshot *snap,
		      const struct uns_view *view, uint64_t parameter, struct uns_err *err)
{
	struct shown *shown = calloc(1, sizeof(*shown));
	int code;

	if (!shown)
		return uns_oom(err);
	shown->view = view;
	shown->parameter = parameter;
	code = shown_build(u, place, snap, shown, err);
	if (code < 0) {
		shown_free(shown);
		return code;
	}
	pthread_mutex_lock(&u->lock);
	shown->next = snap->shown;
	snap->shown = shown;
	snapshot_account(u, snap);
	pthread_mutex_unlock(&u->lock);
	return 0;
}

int show_tree(struct unshard *u, struct place *place, struct snapshot *snap,
	      const struct uns_view *view, uint64_t parameter, const struct shown **out,
	      struct uns_err *err)
{
	int code;

	pthread_mutex_lock(&u->lock);
	while (snap->busy)
		pthread_cond_wait(&u->changed, &u->lock);
	*out = shown_find(snap, view, parameter);
	snap->busy = !*out;
	pthread_mutex_unlock(&u->lock);
	if (*out)
		return 0;

	code = shown_make(u, place, snap, view, parameter, err);

	pthread_mutex_lock(&u->lock);
	snap->busy = false;
	*out = code == 0 ? shown_find(snap, view, parameter) : NULL;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	return code;
}
