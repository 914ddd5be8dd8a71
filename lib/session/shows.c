/* One view of one checkpoint: can it be served, is it still being saved, and the tree when it can. */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/path.h"
#include "files/resume_files.h"

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
		       int code, const char *text)
{
	struct verdict *v = calloc(1, sizeof(*v));

	if (!v || (code < 0 && !(v->text = strdup(text)))) {
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

/* The recorded answer into code and sentence; false when nothing is recorded. Lock taken here. */
static bool verdict_known(struct unshard *u, struct place *place, const struct uns_view *view,
			  uint64_t parameter, int *code, struct uns_err *why)
{
	const struct verdict *v;
	bool known = true;

	pthread_mutex_lock(&u->lock);
	v = verdict_find(place, view, parameter);
	if (v)
		*code = v->code < 0 ? uns_fail(why, v->code, "%s", v->text) : 0;
	else if (place->opened && place->open_code < 0)
		*code = uns_fail(why, place->open_code, "%s", place->open_text);
	else
		known = false;
	pthread_mutex_unlock(&u->lock);
	return known;
}

static int verdict_find_out(struct unshard *u, struct place *place, const struct uns_view *view,
			    uint64_t parameter, struct uns_err *why)
{
	struct snapshot *snap;
	int code, added = 0;

	UNS_TRY(snapshot_get(u, place, &snap, why));
	code = view->supports(snap->cat, parameter, why);
	pthread_mutex_lock(&u->lock);
	if (snap->place == place && (code == 0 || uns_code_is_finding(code)) &&
	    !verdict_find(place, view, parameter))
		added = verdict_add(place, view, parameter, code, why->text);
	pthread_mutex_unlock(&u->lock);
	snapshot_put(u, snap);
	return added < 0 ? added : code;
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

int show_state_of(struct unshard *u, struct place *place, const struct uns_view *view,
		  uint64_t parameter, enum show_state *out, struct uns_err *why)
{
	int code;

	if (!verdict_known(u, place, view, parameter, &code, why))
		code = verdict_find_out(u, place, view, parameter, why);
	/* Of the moment: no verdict. (A file that is changing may be a save that goes on.) */
	if (code < 0 && code != -ESTALE && !uns_code_is_finding(code))
		return code;
	if (code == -ENOTSUP)
		*out = SHOW_NONE;
	else if (code < 0)
		*out = may_be_unfinished(code) && !is_finished(u, place) && place_unsettled(u, place)
			       ? SHOW_SAVING
			       : SHOW_DAMAGED;
	else
		*out = SHOW_OK;
	if (*out == SHOW_DAMAGED)
		log_damage(u, place, why->text);
	if (*out == SHOW_OK && view->needs_finished && !is_finished(u, place) &&
	    place_unsettled(u, place)) {
		*out = SHOW_SAVING;
		uns_fail(why, -ENODATA,
			 "the save may still be going on: the file that is written last is not "
			 "there, and something changed less than %lld s ago (-o settle=)",
			 (long long)(u->settle_ns / 1000000000));
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

	uns_text_printf(&text,
			"unshard cannot serve %s here.\n\n%s\n\n"
			"Run `unshard show CHECKPOINT` on the source for all that is known about "
			"it.\n",
			*place->path ? place->path : "this checkpoint", why->text);
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_add_text(&shown->tree, PROBLEM_FILE, text.p, text.len,
				  "synthesised: why this checkpoint cannot be served", err);
}

/* The snapshot is busy. */
static int know_training(struct unshard *u, struct place *place, struct snapshot *snap,
			 const struct uns_view *view, struct uns_err *err)
{
	if (!view->needs_training || snap->training_known)
		return 0;
	UNS_TRY(training_collect(u, snap, place, err));
	snap->training_known = true;
	return 0;
}

static struct uns_view_input input_of(const struct unshard *u, const struct snapshot *snap)
{
	return (struct uns_view_input){
		.catalog = snap->cat,
		.training = snap->has_training ? &snap->training : NULL,
		.trainer_state_valid = snap->trainer_state_valid,
		.hide_rng = u->opt.hide_rng,
		.keep_rng = u->opt.keep_rng,
		.borrowed = snap->borrowed,
		.n_borrowed = snap->n_borrowed,
		.config = snap->config,
		.tied = snap->tied,
		.n_tied = snap->n_tied,
		.notes = snap->note,
		.n_notes = snap->n_notes,
		.max_shard_size_bytes = u->opt.max_shard_size_bytes,
		.strip = u->opt.strip,
	};
}

static int view_tree(struct unshard *u, struct place *place, struct snapshot *snap,
		     struct shown *shown, struct uns_err *err)
{
	struct uns_view_input in;

	if (shown->view->needs_companions && !snap->ties_proven) {
		UNS_TRY(ties_prove(snap, err));
		snap->ties_proven = true;
	}
	UNS_TRY(know_training(u, place, snap, shown->view, err));
	in = input_of(u, snap);
	return shown->view->tree(&in, shown->parameter, &shown->tree, err);
}

/* What a view finds out only while it makes its tree (a fact about the training that nobody knows) is
 * told in the same way as damage; what may pass (memory, a source that changes) fails the request. */
static int tree_or_problem(struct unshard *u, struct place *place, struct snapshot *snap,
			   struct shown *shown, struct uns_err *err)
{
	struct uns_err why = { 0 };
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
	struct uns_err why = { 0 };
	enum show_state state;
	size_t i;
	int code = show_state_of(u, place, shown->view, shown->parameter, &state, &why);

	if (code < 0)
		return uns_fail(err, code, "%s", why.text);
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

static void become_idle(struct unshard *u, struct snapshot *snap)
{
	snap->busy = false;
	pthread_cond_broadcast(&u->changed);
}

int show_notes(struct unshard *u, struct place *place, struct snapshot *snap,
	       const struct uns_view *view, struct uns_vtree *out, struct uns_err *err)
{
	struct uns_view_input in;
	int code;

	pthread_mutex_lock(&u->lock);
	while (snap->busy)
		pthread_cond_wait(&u->changed, &u->lock);
	snap->busy = true;
	pthread_mutex_unlock(&u->lock);

	code = know_training(u, place, snap, view, err);
	in = input_of(u, snap);
	if (code == 0 && view->needs_training)
		code = uns_resume_trainer_state_add(
			&(struct uns_resume_input){ .catalog = in.catalog,
						    .training = in.training,
						    .trainer_state_valid = in.trainer_state_valid },
			out, err);
	if (code == 0 && view->notes)
		code = view->notes(&in, out, err);

	pthread_mutex_lock(&u->lock);
	become_idle(u, snap);
	pthread_mutex_unlock(&u->lock);
	return code;
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
	*out = code == 0 ? shown_find(snap, view, parameter) : NULL;
	become_idle(u, snap);
	pthread_mutex_unlock(&u->lock);
	return code;
}
