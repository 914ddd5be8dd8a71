/* One view of one checkpoint: can it be served, is it still being saved, and the tree when it can. */
#include "session/shows.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/path.h"
#include "files/resume_files.h"

const char *show_state_text(enum show_state state)
{
	static const char *const text[] = { "ok", "saving", "damaged", "none" };

	return text[state];
}

/* -- verdicts: supports()'s answers, kept with the record -- */

static const struct verdict *verdict_find(const struct dir_record *record, const struct uns_view *view,
					  uint64_t parameter)
{
	const struct verdict *v = record->verdict;

	while (v && (v->view != view || v->parameter != parameter))
		v = v->next;
	return v;
}

static int verdict_add(struct dir_record *record, const struct uns_view *view, uint64_t parameter, int code,
		       const struct uns_finding *why)
{
	struct verdict *v = calloc(1, sizeof(*v));

	if (!v || (code < 0 && !(v->why = uns_finding_dup(why)))) {
		free(v);
		return -ENOMEM;
	}
	v->view = view;
	v->parameter = parameter;
	v->code = code;
	v->next = record->verdict;
	record->verdict = v;
	return 0;
}

/* The recorded answer as a code and its reason; false when nothing is recorded. Lock taken here. */
static bool verdict_known(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
			  int *code, struct uns_err *why)
{
	const struct uns_finding *f;
	const struct verdict *v;

	pthread_mutex_lock(&u->lock);
	v = verdict_find(record, view, parameter);
	f = v ? v->why : record->open_why;
	*code = v ? v->code : f ? f->code : 0;
	if (f && uns_fail_with(why, f) == -ENOMEM)
		*code = -ENOMEM;
	pthread_mutex_unlock(&u->lock);
	return v || f;
}

/* Asks the view about the checkpoint, and then about the files that it borrows. */
static int ask_view(struct unshard *u, const struct snapshot *snap, const struct uns_view *view, uint64_t parameter,
		    struct uns_err *why)
{
	struct uns_view_input in;

	UNS_TRY(view->supports(snap->cat, parameter, why));
	if (!view->supports_input)
		return 0;
	in = show_input(u, snap);
	return view->supports_input(&in, parameter, why);
}

static int verdict_find_out(struct unshard *u, struct dir_record *record, const struct uns_view *view,
			    uint64_t parameter, struct uns_err *why)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err own = { .keep = &arena };
	struct uns_finding f;
	struct snapshot *snap;
	int code, added = 0;

	UNS_TRY(snapshot_get(u, record, &snap, why));
	code = record->is.stat.kind == UNS_KIND_FILE && !view->opens_files
		       ? uns_catalog_fail(snap->cat, UNS_FINDING(.id = UNS_FOUND_FILE_IS_SHOWN), &own)
		       : ask_view(u, snap, view, parameter, &own);
	f = uns_finding_quoting(UNS_FOUND_VIEW_NOT_POSSIBLE, &own, own.finding ? own.finding->scope : UNS_SCOPE_NOTE);
	if (!f.checkpoint)
		f.checkpoint = record->path;
	pthread_mutex_lock(&u->lock);
	if (snap->record == record && (code == 0 || uns_code_is_finding(code)) &&
	    !verdict_find(record, view, parameter))
		added = verdict_add(record, view, parameter, code, &f);
	pthread_mutex_unlock(&u->lock);
	snapshot_put(u, snap);
	if (added < 0)
		return uns_oom(why);
	if (code < 0 && uns_fail_with(why, &f) == -ENOMEM)
		return -ENOMEM;
	return code;
}

/* Once for each state of the files: every view and every look finds the same. */
static bool is_news(struct unshard *u, bool *told)
{
	bool news;

	pthread_mutex_lock(&u->lock);
	news = !*told;
	*told = true;
	pthread_mutex_unlock(&u->lock);
	return news;
}

void show_handed_over(struct unshard *u, struct dir_record *record)
{
	is_news(u, &record->told);
	is_news(u, &record->assumed_told);
}

/* Failures that a writer still at work explains. */
static bool may_be_unfinished(int code)
{
	return code == -ENODATA || code == -EBADMSG || code == -ENOENT || code == -ESTALE;
}

struct uns_finding show_saving(const struct unshard *u, const struct dir_record *record, const char *file)
{
	return (struct uns_finding){ .id = UNS_FOUND_STILL_SAVING,
				     .checkpoint = record->path,
				     .file = file,
				     .expected = uns_num((uint64_t)u->opt.settle_ns / 1000000000) };
}

/* `why`, why the view cannot be shown, becomes that it cannot yet. */
static int still_saving(const struct unshard *u, const struct dir_record *record, struct uns_err *why)
{
	struct uns_finding f = show_saving(u, record, why->finding ? why->finding->file : NULL);

	why->code = 0;
	f.code = -ENODATA;
	return uns_fail_with(why, &f) == -ENOMEM ? -ENOMEM : 0;
}

int show_state_of(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  enum show_state *out, struct uns_err *why)
{
	bool saving;
	int code;

	if (!verdict_known(u, record, view, parameter, &code, why))
		code = verdict_find_out(u, record, view, parameter, why);
	saving = record_saving(u, record);
	if (code == -ENOTSUP)
		*out = SHOW_NONE;
	else if (saving &&
		 (may_be_unfinished(code) || (code == 0 && (view->needs_finished || record_weights_change(u, record)))))
		*out = SHOW_SAVING;
	else if (code < 0 && !uns_code_is_finding(code))
		return code;
	else
		*out = code < 0 ? SHOW_DAMAGED : SHOW_OK;
	if (*out == SHOW_DAMAGED && is_news(u, &record->told))
		uns_log(&u->log, UNS_LOG_WARN, "%s: %s", record->path, why->text);
	return *out == SHOW_SAVING ? still_saving(u, record, why) : 0;
}

/* -- trees -- */

static int problem_tree(struct shown *shown, const struct dir_record *record, const struct uns_err *why,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t from;

	uns_text_printf(&text, "unshard cannot show %s here.", *record->path ? record->path : "this checkpoint");
	uns_text_end_line(&text, 0);
	uns_text_str(&text, "\n");
	from = text.len;
	if (why->finding)
		uns_finding_print(why->finding, &text);
	else
		uns_text_str(&text, why->text);
	uns_text_end_line(&text, from);
	uns_text_str(
		&text,
		"\nRun `unshard show CHECKPOINT` with the checkpoint's path in the source to see what is available.\n");
	if (text.failed)
		return uns_oom(err);
	return uns_vtree_add_text(&shown->tree, SHOW_PROBLEM_FILE, text.p, text.len,
				  "synthesised: why this checkpoint cannot be shown", err);
}

static int learn_ties(struct unshard *u, struct snapshot *snap, struct uns_err *err)
{
	const struct uns_config_info *config = &snap->beside.config_info;
	int code = 0;

	if (!snapshots_learn(&u->snapshots, &snap->ties_learned))
		return 0;
	if (config->ties_embeddings)
		code = ties_prove(snap->cat, config->model_type, snap->backing, &snap->ties, err);
	if (code < 0) {
		uns_arena_fini(&snap->ties.arena);
		snap->ties = (struct ties){ 0 };
	}
	snapshots_learned(&u->snapshots, snap, &snap->ties_learned, code == 0);
	if (code == 0)
		snapshots_save_crcs(&u->snapshots, snap);
	return code;
}

/* The proof of an optimizer's names, which is kept in the store. */
static int masters_find(struct unshard *u, struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_span bytes;

	if (memo_load_masters(u->snapshots.memo, snap->crc_key, &arena, &bytes) == 0 &&
	    masters_unpack(bytes, &snap->masters))
		return 0;
	UNS_TRY(masters_prove(u->snapshots.engine, snap->cat, snap->backing, &snap->masters, err));
	if (!snap->masters.disproof && snap->lasting) {
		masters_pack(&snap->masters, &text);
		memo_save_masters(u->snapshots.memo, snap->crc_key, &text);
	}
	return 0;
}

static int learn_masters(struct unshard *u, struct snapshot *snap, struct uns_err *err)
{
	int code;

	if (!snapshots_learn(&u->snapshots, &snap->masters_learned))
		return 0;
	code = masters_find(u, snap, err);
	if (code < 0) {
		masters_found_fini(&snap->masters);
		snap->masters = (struct masters_found){ 0 };
	}
	snapshots_learned(&u->snapshots, snap, &snap->masters_learned, code == 0);
	return code;
}

/* What is not proven is not shown. */
static int prove_names(struct unshard *u, struct snapshot *snap, struct uns_vtree *out, struct uns_err *err)
{
	UNS_TRY(learn_masters(u, snap, err));
	if (snap->masters.disproof)
		return uns_fail_with(err, snap->masters.disproof);
	return uns_vtree_note(
		out, err,
		"the optimizer was saved in buckets without names (dp_reshardable): its names follow from "
		"Megatron-Core's rules, and were proven: %llu fp32 copies (%llu elements, each rank's own copies among "
		"them), rounded to the weights' dtype, equal the weights bit for bit",
		(unsigned long long)snap->masters.n_parameters, (unsigned long long)snap->masters.n_elems);
}

static void log_assumed(struct unshard *u, struct dir_record *record, const char *assumed)
{
	if (assumed && is_news(u, &record->assumed_told))
		uns_log(&u->log, UNS_LOG_WARN, "%s: %s", record->path, assumed);
}

static struct training_input training_input(struct unshard *u, struct dir_record *record, struct snapshot *snap)
{
	return (struct training_input){ .root = u->root,
					.path = record->path,
					.cat = snap->cat,
					.backing = snap->backing,
					.store = &u->store,
					.has_facts = record_has_facts(record),
					.option = u->opt.fact,
					.n_option = u->opt.n_fact };
}

int show_steps(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_err *err)
{
	const struct training_input in = training_input(u, record, snap);
	int code;

	if (!snapshots_learn(&u->snapshots, &snap->steps_learned))
		return 0;
	code = steps_compare(&in, &snap->steps, err);
	if (code < 0) {
		steps_found_fini(&snap->steps);
		snap->steps = (struct steps_found){ 0 };
	}
	snapshots_learned(&u->snapshots, snap, &snap->steps_learned, code == 0);
	return code;
}

static int learn_training(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_err *err)
{
	const struct training_input in = training_input(u, record, snap);
	int code;

	if (!snapshots_learn(&u->snapshots, &snap->training_learned))
		return 0;
	code = training_collect(&in, &snap->training, err);
	if (code < 0) {
		training_found_fini(&snap->training);
		snap->training = (struct training_found){ 0 };
	}
	log_assumed(u, record, snap->training.assumed);
	snapshots_learned(&u->snapshots, snap, &snap->training_learned, code == 0);
	return code;
}

/* The notes of the companions' choice and of the proof of ties, in that order. */
static int gather_notes(const struct snapshot *snap, struct uns_arena *arena, struct uns_view_input *in,
			struct uns_err *err)
{
	const struct uns_findings *first = &snap->beside.notes, *then = &snap->ties.notes;
	struct uns_finding *note = UNS_NEW_N(arena, struct uns_finding, first->n + then->n);

	UNS_TRY_ALLOC(note, err);
	if (first->n)
		memcpy(note, first->v, first->n * sizeof(*note));
	if (then->n)
		memcpy(note + first->n, then->v, then->n * sizeof(*note));
	in->notes = note;
	in->n_notes = first->n + then->n;
	return 0;
}

struct uns_view_input show_input(const struct unshard *u, const struct snapshot *snap)
{
	return (struct uns_view_input){
		.catalog = snap->cat,
		.hide_rng = u->opt.hide_rng,
		.keep_rng = u->opt.keep_rng,
		.borrowed = snap->beside.v,
		.n_borrowed = snap->beside.n,
		.config = snap->beside.config,
		.config_info = snap->beside.config_info,
		.notes = snap->beside.notes.v,
		.n_notes = snap->beside.notes.n,
		.max_shard_size_bytes = u->opt.max_shard_size_bytes,
		.strip = u->opt.strip,
		.prefix = snap->beside.prefix,
		.base = &snap->beside.base,
		.adapter = snap->beside.adapter,
		.adapter_config = snap->beside.adapter_config,
		.adapters = u->opt.adapters,
		.adapter_configs = snap->beside.adapter_configs,
		.base_model = &snap->beside.base_model,
		.modules = snap->beside.modules,
		.pipeline = snap->beside.pipeline,
		.keep_names = u->opt.keep_names,
		.experts = u->opt.experts,
	};
}

int show_training(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_training **out,
		  struct uns_err *err)
{
	UNS_TRY(learn_training(u, record, snap, err));
	*out = &snap->training.training;
	return 0;
}

static int add_training(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_view_input *in,
			struct uns_err *err)
{
	UNS_TRY(show_steps(u, record, snap, err));
	if (snap->steps.disproof)
		return uns_fail_with(err, snap->steps.disproof);
	UNS_TRY(learn_training(u, record, snap, err));
	in->training = &snap->training.training;
	in->trainer_state_valid = snap->training.state_valid;
	return 0;
}

int show_input_of_training(struct unshard *u, struct dir_record *record, struct snapshot *snap,
			   struct uns_view_input *out, struct uns_err *err)
{
	*out = show_input(u, snap);
	return add_training(u, record, snap, out, err);
}

/* Only what the view asks for is found out: another may be at the rest, and take long. */
static int view_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct shown *shown,
		     struct uns_err *err)
{
	struct uns_view_input in = show_input(u, snap);

	if (shown->view->needs_companions) {
		UNS_TRY(learn_ties(u, snap, err));
		UNS_TRY(gather_notes(snap, &shown->tree.arena, &in, err));
		in.tied = snap->ties.v;
		in.n_tied = snap->ties.n;
	}
	if (shown->view->needs_training)
		UNS_TRY(add_training(u, record, snap, &in, err));
	if (snap->cat->summary.named_by_rule && shown->view->names_optimizer &&
	    shown->view->names_optimizer(shown->parameter))
		UNS_TRY(prove_names(u, snap, &shown->tree, err));
	UNS_TRY(shown->view->tree(&in, shown->parameter, &shown->tree, err));
	return uns_arena_check(&shown->tree.arena, err);
}

/* What a view finds out only while it makes its tree (an unknown fact about the training) is
 * reported in the same way as damage; what may pass (memory, a source that changes) fails the request. */
static int tree_or_problem(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct shown *shown,
			   struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	int code = view_tree(u, record, snap, shown, &why);

	if (code == -ENODATA || code == -ENOTSUP || code == -EBADMSG) {
		uns_vtree_fini(&shown->tree);
		return problem_tree(shown, record, &why, err);
	}
	return code < 0 ? uns_fail_copy(err, &why) : 0;
}

static int shown_build(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct shown *shown,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	enum show_state state;

	if (show_state_of(u, record, shown->view, shown->parameter, &state, &why) < 0)
		return uns_fail_copy(err, &why);
	if (state == SHOW_OK)
		UNS_TRY(tree_or_problem(u, record, snap, shown, err));
	else if (state == SHOW_DAMAGED)
		UNS_TRY(problem_tree(shown, record, &why, err));
	else
		return uns_fail(err, -ENOENT, "%s", why.text);
	uns_vtree_seal(&shown->tree);
	return 0;
}

/* Lock held. */
static struct shown *shown_find(const struct snapshot *snap, const struct uns_view *view, uint64_t parameter)
{
	struct shown *s = snap->shown;

	while (s && (s->view != view || s->parameter != parameter))
		s = s->next;
	return s;
}

/* Lock held. */
static struct shown *shown_begin(struct snapshot *snap, const struct uns_view *view, uint64_t parameter)
{
	struct shown *shown = calloc(1, sizeof(*shown));

	if (!shown)
		return NULL;
	*shown = (struct shown){ .next = snap->shown, .view = view, .parameter = parameter, .making = true };
	snap->shown = shown;
	return shown;
}

/* It is there for all now, or was never begun. */
static void shown_end(struct unshard *u, struct snapshot *snap, struct shown *shown, int code)
{
	struct shown **at = &snap->shown;

	pthread_mutex_lock(&u->lock);
	shown->making = false;
	if (code < 0) {
		while (*at != shown)
			at = &(*at)->next;
		*at = UNS_TAKE(shown->next);
	} else {
		snapshots_account(&u->snapshots, snap);
	}
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	if (code < 0)
		shown_free(shown);
}

int show_notes(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
	       struct uns_vtree *out, struct uns_err *err)
{
	struct uns_view_input in = show_input(u, snap);

	if (view->needs_training) {
		UNS_TRY(add_training(u, record, snap, &in, err));
		UNS_TRY(uns_resume_trainer_state_add(
			&(struct uns_resume_input){ .catalog = in.catalog,
						    .training = in.training,
						    .trainer_state_valid = in.trainer_state_valid },
			out, err));
	}
	return view->notes ? view->notes(&in, out, err) : 0;
}

int show_state_told(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		    uint64_t parameter, bool *noted, enum show_state *out, struct uns_err *why)
{
	struct uns_vtree told = { 0 };
	int code;

	UNS_TRY(show_state_of(u, record, view, parameter, out, why));
	if (*out == SHOW_OK && view->needs_training) {
		UNS_TRY(show_steps(u, record, snap, why));
		if (snap->steps.disproof) {
			*out = SHOW_DAMAGED;
			return uns_fail_with(why, snap->steps.disproof) == -ENOMEM ? -ENOMEM : 0;
		}
	}
	if (*out != SHOW_OK || *noted || (view->needs_training && !snap->cat->summary.is_megatron))
		return 0;
	code = show_notes(u, record, snap, view, &told, why);
	uns_vtree_fini(&told);
	*noted = code == 0;
	if (!uns_code_is_finding(code))
		return code;
	/* What full and universal lack to convert an optimizer is no damage: the weights' views have a note of that. */
	*out = view->needs_training ? SHOW_NONE : SHOW_DAMAGED;
	return 0;
}

int show_tree(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
	      uint64_t parameter, const struct shown **out, struct uns_err *err)
{
	struct shown *shown;
	bool mine = false;
	int code;

	*out = NULL;
	pthread_mutex_lock(&u->lock);
	while ((shown = shown_find(snap, view, parameter)) && shown->making)
		pthread_cond_wait(&u->changed, &u->lock);
	if (!shown) {
		shown = shown_begin(snap, view, parameter);
		mine = shown != NULL;
	}
	pthread_mutex_unlock(&u->lock);
	UNS_TRY_ALLOC(shown, err);
	code = mine ? shown_build(u, record, snap, shown, err) : 0;
	if (mine)
		shown_end(u, snap, shown, code);
	*out = code < 0 ? NULL : shown;
	return code;
}

/* -- contents -- */

/* *kept: they will be found. */
static int contents_learn(struct unshard *u, struct dir_record *record, struct snapshot *snap,
			  const struct uns_view *view, uint64_t parameter, struct contents **out, bool *kept,
			  struct uns_err *err)
{
	const struct shown *shown;

	UNS_TRY(show_tree(u, record, snap, view, parameter, &shown, err));
	UNS_TRY(contents_new(&(struct contents_source){ view, parameter, &shown->tree, snap->cat, &record->is.stat },
			     out, err));
	*kept = contents_keep(&u->snapshots.contents, record, *out);
	return 0;
}

int show_contents(struct unshard *u, struct dir_record *record, const struct uns_view *view, uint64_t parameter,
		  struct contents **out, struct uns_err *err)
{
	struct snapshot *snap;
	bool kept;
	int code;

	*out = contents_find(&u->snapshots.contents, record, view, parameter);
	if (*out)
		return 0;
	UNS_TRY(snapshot_get(u, record, &snap, err));
	code = contents_learn(u, record, snap, view, parameter, out, &kept, err);
	snapshot_put(u, snap);
	return code;
}

/* To prove what is tied, all bytes of an embedding may have to be read. */
static bool is_cheap(struct unshard *u, const struct dir_record *record, const struct snapshot *snap,
		     const struct uns_view *view)
{
	const uint64_t small_bytes = 64 << 20;
	bool known;

	pthread_mutex_lock(&u->lock);
	known = snap->ties_learned.known;
	pthread_mutex_unlock(&u->lock);
	return known || !view->needs_companions || !snap->beside.config_info.ties_embeddings ||
	       record->is.source_bytes <= small_bytes;
}

/* False = there is no room for more. */
static bool contents_add(struct unshard *u, struct dir_record *record, struct snapshot *snap,
			 const struct uns_view *view, uint64_t parameter)
{
	struct contents *contents = contents_find(&u->snapshots.contents, record, view, parameter);
	bool kept = true;

	/* Where this fails, the next reader of that view learns why. */
	if (!contents && is_cheap(u, record, snap, view))
		contents_learn(u, record, snap, view, parameter, &contents, &kept, NULL);
	contents_unref(contents);
	return kept;
}

static bool take_reopened(struct unshard *u, struct dir_record *record)
{
	bool reopened;

	pthread_mutex_lock(&u->lock);
	reopened = record->reopened;
	record->reopened = false;
	pthread_mutex_unlock(&u->lock);
	return reopened && !u->opt.only;
}

void show_contents_ahead(struct unshard *u, struct dir_record *record)
{
	const char *const *listed;
	struct snapshot *snap;
	uint64_t parameter;
	bool room = true;
	size_t i;

	if (!take_reopened(u, record) || !contents_have_room(&u->snapshots.contents) ||
	    snapshot_get(u, record, &snap, NULL) < 0)
		return;
	for (i = 0; uns_views[i]; i++)
		for (listed = uns_views[i]->listed; room && *listed; listed++)
			if (uns_views[i]->parse(*listed, &parameter))
				room = contents_add(u, record, snap, uns_views[i], parameter);
	snapshot_put(u, snap);
}

int show_served(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		uint64_t parameter, const struct shown **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { .keep = &arena };
	enum show_state state;
	int code = show_state_of(u, record, view, parameter, &state, &why);

	if (code < 0 || state != SHOW_OK)
		return uns_fail(err, why.code, "%s", why.text);
	UNS_TRY(show_tree(u, record, snap, view, parameter, out, err));
	if (uns_vtree_find(&(*out)->tree, SHOW_PROBLEM_FILE))
		return uns_fail(err, -EBADMSG,
				"%s: the view %s cannot show this checkpoint: %s "
				"in the view has the reason",
				record->path, view->name, SHOW_PROBLEM_FILE);
	return 0;
}
