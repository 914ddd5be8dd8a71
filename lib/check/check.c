/* unshard_check: what is wrong with the checkpoints below a directory, each with what to do. Looks
 * for directories by name too: other functions see no checkpoint in a directory in which nothing was saved. */
#include "check/checking.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "check/leftover.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"
#include "files/beside.h"
#include "names/memory_names.h"
#include "ranks/tracker.h"
#include "session/resumes.h"
#include "session/shows.h"

enum { MAX_LEFTOVER_DEPTH = 4, MAX_STATE_BYTES = 64 << 20 };

static int visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	struct checking *c = ctx;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_finding *f;

	UNS_TRY_ALLOC(f = reason_of_directory(path, c->u, why, &arena), err);
	c->path = path;
	return checking_hand_over(c, &(struct reason){ .finding = f }, UNS_UNJUDGED, false);
}

/* -- what a Trainer wants to resume from -- */

struct subject {
	const struct dir_record *record;
	const struct snapshot *snap;
	const struct uns_catalog *cat;
	struct uns_listing list; /* the checkpoint's directory */
	bool trainer, optimizer, scheduler;
};

static bool named_optimizer(const struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (uns_str_starts(cat->companions[i].name, "optimizer") &&
		    !uns_str_ends(cat->companions[i].name, ".tmp"))
			return true;
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role))
			return true;
	return false;
}

/* A file that cannot be read at this moment may be sound: the checkpoint could not be checked, no more. */
static int file_unreadable(struct checking *c, const struct uns_err *why)
{
	return CHECKING_FOUND(c, CHECKPOINT_UNREADABLE, .scope = UNS_SCOPE_OPTIMIZER, .code = why->code,
			      .arg = { { "cause", uns_str(why->text) } });
}

/* Keys that other trainers and older versions of transformers do not write: no damage, but a Trainer acts on them. */
static int check_absent(struct checking *c, const char *path, struct uns_span text)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text names = UNS_TEXT_INIT;
	const char *key;
	bool batch = false;
	int code = 0;
	size_t i;

	for (i = 0; (key = uns_trainer_state_absent((const char *)text.p, uns_span_left(&text), i)); i++) {
		if (strcmp(key, "train_batch_size") == 0)
			batch = true;
		else
			uns_text_printf(&names, "%s%s", names.len ? ", " : "", key);
	}
	if (names.failed)
		return -ENOMEM;
	if (batch)
		code = CHECKING_FOUND(c, TRAINER_STATE_BATCH_SIZE, .file = path);
	if (code == 0 && names.len)
		code = CHECKING_FOUND(c, TRAINER_STATE_CADENCES, .file = path, .found = uns_str(names.p));
	return code;
}

static int check_trainer_state(struct checking *c, const struct subject *s)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = uns_path_join(&arena, c->path, "trainer_state.json");
	struct uns_err why = { 0 };
	struct uns_span text;

	if (!s->trainer || !path)
		return path ? 0 : -ENOMEM;
	if (!uns_listing_find(&s->list, "trainer_state.json"))
		return checking_found_as(
			c,
			UNS_FINDING(.id = UNS_FOUND_TRAINER_STATE_MISSING, .scope = UNS_SCOPE_OPTIMIZER, .file = path),
			s->optimizer ? UNS_PROBLEM : UNS_NOTE);
	if (uns_root_read_file(c->u->root, path, MAX_STATE_BYTES, &arena, &text, NULL, &why) == 0 &&
	    uns_trainer_state_check((const char *)text.p, uns_span_left(&text), NULL, &why) == 0)
		return check_absent(c, path, text);
	if (!uns_code_is_finding(why.code))
		return file_unreadable(c, &why);
	return CHECKING_FOUND(c, TRAINER_STATE_UNUSABLE, .scope = UNS_SCOPE_OPTIMIZER, .file = path,
			      .arg = { { "cause", uns_str(why.text) } });
}

/* -- Lightning -- */

static int check_weights_only(struct checking *c, const struct subject *s)
{
	if (!s->cat->summary.is_weights_only)
		return 0;
	return CHECKING_FOUND(c, SAVED_WEIGHTS_ONLY);
}

/* -- random states: one file a rank -- */

struct rng {
	const char *prefix, *suffix;
	int64_t ranks; /* highest + 1 */
	size_t n;
};

static struct rng rng_of(const struct uns_listing *list)
{
	struct rng r = { .prefix = "rng_state_", .suffix = ".pth" };

	r.ranks = uns_beside_ranks(list, r.prefix, r.suffix, &r.n);
	if (r.ranks)
		return r;
	if (uns_listing_find(list, "rng_state.pth"))
		return (struct rng){ "rng_state", ".pth", 1, 1 };
	r = (struct rng){ .prefix = "random_states_", .suffix = ".pkl" };
	r.ranks = uns_beside_ranks(list, r.prefix, r.suffix, &r.n);
	return r;
}

/* A Trainer's optimizer and scheduler are saved together, and with random states; DeepSpeed keeps its optimizer in a
 * directory of its own. save_only_model leaves out all three. */
static int check_both(struct checking *c, const struct subject *s)
{
	enum uns_finding_id id = s->optimizer ? UNS_FOUND_SCHEDULER_MISSING : UNS_FOUND_OPTIMIZER_MISSING;
	size_t i;

	for (i = 0; i < s->list.n; i++)
		if (s->list.v[i].kind == UNS_KIND_DIR && uns_str_starts(s->list.v[i].name, "global_step"))
			return 0;
	if (!s->trainer || (s->optimizer && s->scheduler))
		return 0;
	if (!s->optimizer && !s->scheduler) {
		/* A directory of another name may be what trainer.save_model and save_state make. */
		if (!rng_of(&s->list).n && uns_checkpoint_name_of(checking_name(c)) != UNS_NAME_TRAINER)
			return 0;
		id = rng_of(&s->list).n ? UNS_FOUND_BOTH_MISSING : UNS_FOUND_SAVED_MODEL_ONLY;
	}
	return checking_found(c,
			      UNS_FINDING(.id = id, .scope = id == UNS_FOUND_SAVED_MODEL_ONLY ? UNS_SCOPE_NOTE
											      : UNS_SCOPE_OPTIMIZER));
}

static int first_missing(struct checking *c, const struct subject *s, const struct rng *r)
{
	char name[64];
	int64_t i;

	for (i = 0; i < r->ranks; i++) {
		snprintf(name, sizeof(name), "%s%" PRId64 "%s", r->prefix, i, r->suffix);
		if (!uns_listing_find(&s->list, name))
			return CHECKING_FOUND(c, RNG_FILE_MISSING, .scope = UNS_SCOPE_OPTIMIZER, .file = name,
					      .rank = uns_rank(i), .found = uns_num(r->n),
					      .expected = uns_num((uint64_t)r->ranks));
	}
	return 0;
}

static int check_rng(struct checking *c, const struct subject *s)
{
	const struct rng r = rng_of(&s->list);
	int64_t writers = 0; /* the highest rank that wrote, + 1 */
	size_t i;

	for (i = 0; i < s->cat->n_pieces; i++)
		if (s->cat->pieces[i].rank >= writers)
			writers = s->cat->pieces[i].rank + 1;
	if (!r.ranks && s->trainer && s->optimizer)
		return CHECKING_FOUND(c, RNG_MISSING);
	if ((int64_t)r.n < r.ranks)
		return first_missing(c, s, &r);
	if (!r.ranks || !s->cat->summary.has_rng_of_ranks)
		return 0;
	if (writers > r.ranks)
		return CHECKING_FOUND(c, RNG_OF_FEWER_RANKS, .scope = UNS_SCOPE_OPTIMIZER,
				      .expected = uns_num((uint64_t)writers), .found = uns_num((uint64_t)r.ranks),
				      .arg = { { "prefix", uns_str(r.prefix) }, { "suffix", uns_str(r.suffix) } });
	if (writers && writers < r.ranks)
		return CHECKING_FOUND(c, RNG_OF_MORE_RANKS, .expected = uns_num((uint64_t)writers),
				      .found = uns_num((uint64_t)r.ranks));
	return 0;
}

/* -- config.json -- */

/* Of companions.c's notes, those that are about config.json. */
static const struct config_note {
	enum uns_finding_id id;
	bool rejected; /* a config.json was not taken */
	bool mild;     /* no problem, also if there is no config.json */
} config_note_kinds[] = {
	{ .id = UNS_FOUND_CONFIG_UNUSABLE, .rejected = true },
	{ .id = UNS_FOUND_CONFIG_DOES_NOT_FIT, .rejected = true },
	{ .id = UNS_FOUND_CONFIG_HAS_OTHER_NAMES },
	{ .id = UNS_FOUND_CONFIG_HAS_OTHER_PREFIX },
	{ .id = UNS_FOUND_PREFIX_LEFT_OUT },
	{ .id = UNS_FOUND_SENTENCE_MODULES_MISSING },
	{ .id = UNS_FOUND_SENTENCE_MODULES_UNUSABLE },
	{ .id = UNS_FOUND_PIPELINE_UNDECIDED, .mild = true },
	{ .id = UNS_FOUND_NAMED_MODEL_NOT_FOUND, .mild = true },
	{ .id = UNS_FOUND_CONFIG_NOT_MADE, .mild = true },
};

/* NULL = it is about something else. */
static const struct config_note *config_note_of(enum uns_finding_id id)
{
	size_t i;

	for (i = 0; i < sizeof(config_note_kinds) / sizeof(*config_note_kinds); i++)
		if (config_note_kinds[i].id == id)
			return &config_note_kinds[i];
	return NULL;
}

/* Which config.json was looked at and not taken, or taken for weights of other names. */
static int config_notes(struct checking *c, const struct subject *s, size_t *n_rejected)
{
	const struct uns_findings *notes = &s->snap->beside.notes;
	const struct config_note *is;
	size_t i;
	int code = 0;

	for (i = 0; i < notes->n && code == 0; i++) {
		is = config_note_of(notes->v[i].id);
		if (!is)
			continue;
		*n_rejected += is->rejected;
		code = checking_found_as(c, &notes->v[i],
					 s->snap->beside.config.p || is->mild ? UNS_NOTE : UNS_PROBLEM);
	}
	return code;
}

static int check_config(struct checking *c, const struct subject *s)
{
	struct uns_err why = { 0 };
	size_t n_rejected = 0;
	int code = config_notes(c, s, &n_rejected);

	if (code)
		return code;
	if (s->snap->beside.config.p && uns_config_check(&s->snap->beside.config_info, s->cat, &why) < 0)
		return CHECKING_FOUND(c, CONFIG_UNLIKE_WEIGHTS, .arg = { { "cause", uns_str(why.text) } });
	if (s->snap->beside.config.p || s->snap->beside.pipeline.n || n_rejected || !s->cat->summary.wants_config)
		return 0;
	return CHECKING_FOUND(c, CONFIG_MISSING);
}

/* -- names of weights -- */

static int check_names(struct checking *c, const struct subject *s)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_config_info *config = &s->snap->beside.config_info;
	struct uns_memory_names names;
	struct uns_err err = { 0 };

	if (uns_memory_names_find(config, s->cat, &arena, &names, &err) < 0)
		return -ENOMEM;
	if (!names.n)
		return 0;
	return CHECKING_FOUND(c, RESUME_LEAVES_NEW, .tensor = names.first, .found = uns_str(config->model_type),
			      .arg = { { "n", uns_num(names.n_renamed) } });
}

/* -- one checkpoint -- */

/* *found: one of these entries is a link that is not followed, which was reported. */
static int check_links(struct checking *c, const char *dir, const struct uns_listing *list, const char *const *prefixes,
		       bool *found)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_unfollowed link;
	const struct uns_finding *f;
	int code = uns_unfollowed_in(c->u->root, dir, list, prefixes, &arena, &link, NULL);

	*found = code > 0;
	if (code <= 0)
		return code;
	f = reason_of_link(checking_name(c), &link, &arena);
	return f ? checking_hand_over(c, &(struct reason){ .finding = f }, UNS_UNJUDGED, false) : -ENOMEM;
}

static int check_opened(struct checking *c, struct subject *s, size_t problems_before)
{
	static const char *const of_resuming[] = { "scheduler", "optimizer",     "rng_state", "random_states",
						   "scaler",    "trainer_state", NULL };
	static int (*const rules[])(struct checking *, const struct subject *) = { check_trainer_state, check_both,
										   check_weights_only,  check_rng,
										   check_config,        check_names };
	bool linked;
	size_t i;
	int code;

	code = check_links(c, s->record->path, &s->list, of_resuming, &linked);
	if (code || linked)
		return code;
	s->cat = s->snap->cat;
	s->trainer = s->cat->summary.of_trainer || (uns_checkpoint_name_of(checking_name(c)) == UNS_NAME_TRAINER &&
						    !(s->cat->summary.resumed_by & UNS_BY_ACCELERATE));
	s->optimizer = named_optimizer(s->cat);
	s->scheduler = uns_resume_has_scheduler(s->cat);
	for (i = 0; i < sizeof(rules) / sizeof(*rules) && code == 0; i++)
		code = rules[i](c, s);
	if (code == 0)
		code = check_other_models(c, s->cat, &s->list);
	/* What a Trainer leaves out was found above; others do not mark the end of a save. */
	if (code == 0 && !record_finished(c->u, s->record) && c->counts.problems == problems_before)
		code = CHECKING_FOUND(c, SAVE_END_UNKNOWN);
	return code;
}

/* It could not be opened just now, and its reasons, for which it was opened again, do not have that. */
static int report_unopened(struct checking *c, const struct dir_record *record, const struct uns_err *unopened,
			   struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_finding *f = reason_of_failure(record, unopened, &arena);

	UNS_TRY_ALLOC(f, err);
	return checking_hand_over(c, &(struct reason){ .finding = f }, f->severity, true);
}

/* Without a snapshot `unopened` has the reason. */
static int check_snapshot(struct checking *c, struct dir_record *record, struct snapshot *snap,
			  const struct uns_err *unopened, struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct subject s = { .record = record, .snap = snap };
	size_t before = c->counts.problems, i;
	struct uns_err why = { 0 };
	int code = 0;

	UNS_TRY(reasons_find(c->u, record, &reasons, err));
	for (i = 0; i < reasons.n && code == 0; i++)
		/* --deep compares the content of files that have another time. */
		if (!c->deep || reasons.v[i].finding->id != UNS_FOUND_SEALED_AT_OTHER_TIMES)
			code = checking_hand_over(c, &reasons.v[i], reasons.v[i].finding->severity, !reasons.v[i].view);
	if (code == 0 && !snap && !uns_code_is_finding(unopened->code) && !reasons.moment.code)
		code = report_unopened(c, record, unopened, err);
	if (code == 0 && !snap && !reasons.saving)
		code = c->deep ? check_seal_deep(c, NULL, err) : check_seal_unopened(c, err);
	if (code || !snap || reasons.saving || reasons.outside)
		return code;
	if (record->is.stat.kind == UNS_KIND_DIR && uns_root_list(c->u->root, record->path, &arena, &s.list, &why) < 0)
		return walk_past(&c->walk, record->path, &why, err);
	code = check_opened(c, &s, before);
	if (code == 0 && c->for_view)
		code = check_for(c, record, snap, err);
	if (code == 0 && !c->without_holes)
		code = check_holes(c, snap);
	if (code == 0)
		code = check_whole(c, record, snap, err);
	if (code == 0 && c->deep)
		code = check_seal_deep(c, snap->cat, err);
	if (code == 0 && c->deep)
		code = check_memo(c, record, err);
	if (code == 0)
		code = check_base(c, snap, err);
	return code == 0 && c->deep ? check_deep(c, snap, &reasons, err) : code;
}

static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	struct checking *c = ctx;
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	int code = snapshot_get(c->u, record, &snap, &why);

	if (code == -ENOMEM)
		return uns_fail(err, code, "out of memory");
	c->path = record->path;
	c->sealed = false;
	c->counts.checkpoints++;
	show_handed_over(c->u, record);
	code = check_snapshot(c, record, code < 0 ? NULL : snap, &why, err);
	snapshot_put(c->u, snap);
	return code;
}

/* -- directories that only have the name -- */

/* The walk has reported a directory that cannot be listed; here it counts as a file that may be weights. */
static int count_files(struct checking *c, struct uns_leftover *l, struct uns_arena *arena, const char *path, int depth,
		       struct uns_err *err)
{
	struct uns_listing list;
	const char *child;
	size_t i;

	if (uns_root_list(c->u->root, path, arena, &list, NULL) < 0) {
		l->unread = true;
		l->some_file = path;
		l->n_files++;
		return 0;
	}
	for (i = 0; i < list.n; i++) {
		UNS_TRY_ALLOC(child = uns_path_join(arena, path, list.v[i].name), err);
		if (list.v[i].kind == UNS_KIND_DIR && depth < MAX_LEFTOVER_DEPTH)
			UNS_TRY(count_files(c, l, arena, child, depth + 1, err));
		if (list.v[i].kind == UNS_KIND_DIR)
			continue;
		l->n_files++;
		if (l->unread)
			continue;
		l->unread = !uns_leftover_is_weightless(list.v[i].name);
		if (l->unread || !l->some_file)
			l->some_file = list.v[i].name;
	}
	return 0;
}

static int check_leftover(struct checking *c, const struct dir_record *record, enum uns_checkpoint_name name,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_identity *id = &record->is.stat.id;
	struct uns_leftover l = { .name = name };
	struct uns_listing list;
	struct uns_finding f;
	bool linked;
	int code;

	if (records_changed_lately(&c->u->records, id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns)) {
		f = show_saving(c->u, record, NULL);
		return checking_found(c, &f);
	}
	if (uns_root_list(c->u->root, record->path, &arena, &list, NULL) == 0) {
		code = check_links(c, record->path, &list, NULL, &linked);
		if (code || linked)
			return code;
	}
	UNS_TRY(count_files(c, &l, &arena, record->path, 0, err));
	return checking_found(c, UNS_FINDING(.id = uns_leftover_id(&l), .file = l.some_file));
}

/* -- directories that are no checkpoints -- */

/* How much there was to report so far. */
static size_t reported(const struct checking *c)
{
	return c->counts.checkpoints + c->counts.problems + c->counts.notes + c->counts.unjudged;
}

/* Checks the trackers in a directory: files that name a run's last checkpoint. */
static int visit_before(void *ctx, struct dir_record *record, const struct uns_listing *list, size_t *mark,
			struct uns_err *err)
{
	struct checking *c = ctx;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *const *name = uns_rank_trackers;
	struct uns_finding f;
	struct uns_err why;
	struct uns_span bytes;
	const char *file;

	*mark = reported(c);
	for (c->path = record->path; *name; name++) {
		UNS_TRY_ALLOC(file = uns_path_join(&arena, record->path, *name), err);
		if (!uns_listing_find(list, *name))
			continue;
		why = (struct uns_err){ 0 };
		if (uns_root_read_file(c->u->root, file, UNS_TRACKER_MAX_BYTES, &arena, &bytes, NULL, &why) < 0) {
			if (!uns_code_is_finding(why.code))
				UNS_TRY(file_unreadable(c, &why));
			continue;
		}
		if (uns_rank_tracker_check(*name, bytes, list, &arena, &f))
			continue;
		f.file = file;
		UNS_TRY(checking_found(c, &f));
	}
	return 0;
}

/* If nothing was found below a directory (which may be checkpoint-2/global_step2), and it is named like a checkpoint,
 * that is a finding. */
static int visit_after(void *ctx, struct dir_record *record, size_t mark, struct uns_err *err)
{
	struct checking *c = ctx;
	enum uns_checkpoint_name name;
	struct uns_finding f;

	c->path = record->path;
	if (records_in_the_making(&c->u->records, record)) {
		f = show_saving(c->u, record, NULL);
		return checking_found(c, &f);
	}
	name = uns_checkpoint_name_of(checking_name(c));
	return name == UNS_NAME_OTHER || reported(c) > mark ? 0 : check_leftover(c, record, name, err);
}

static int check_all(struct checking *c, const char *path, struct uns_err *err)
{
	int code;

	c->walk = (struct walk){ .u = c->u,
				 .ctx = c,
				 .caller = &c->caller,
				 .checkpoint = visit_checkpoint,
				 .enter = visit_before,
				 .leave = visit_after,
				 .unreadable = visit_unreadable };
	code = walk_checkpoints(&c->walk, path, err);
	c->path = path;
	if (code == 0 && c->n_without_crc)
		code = CHECKING_FOUND(c, NO_CRCS, .file = c->without_crc,
				      .arg = { { "n", uns_num(c->n_without_crc) } });
	free(c->without_crc);
	if (code == 0 && reported(c) == 0)
		code = CHECKING_FOUND(c, NOTHING_FOUND, .file = *path ? path : uns_root_path(c->u->root));
	return code;
}

int unshard_check(unshard *u, const char *path, unsigned flags, const struct unshard_calls *calls,
		  struct unshard_check_counts *counts, struct unshard_error *error)
{
	return unshard_check_against(u, path, NULL, NULL, flags, calls, counts, error);
}

int unshard_check_against(unshard *u, const char *path, unshard *base, const char *base_path, unsigned flags,
			  const struct unshard_calls *calls, struct unshard_check_counts *counts,
			  struct unshard_error *error)
{
	struct checking c = { .u = u,
			      .base = base,
			      .base_path = base_path,
			      .deep = flags & UNSHARD_DEEP,
			      .for_view = flags & UNSHARD_FOR_VIEW,
			      .without_holes = flags & UNSHARD_WITHOUT_HOLES,
			      .counts = CALLER_OWN(struct unshard_check_counts) };
	struct uns_err err = { 0 };
	int code = caller_flags(flags, UNSHARD_DEEP | UNSHARD_FOR_VIEW | UNSHARD_WITHOUT_HOLES, &err);

	if (code == 0 && c.for_view && !(u->opt.only && resumes_is_view(u->opt.only)))
		code = uns_fail(
			&err, -EINVAL,
			"what a training misses is judged for the views full, full-fsdp, dcp, universal, torch_dist and world-N, not for %s",
			u->opt.only ? u->opt.only->name : "all at once: name one");
	if (code == 0 && counts) /* a wrong size is reported before the work */
		code = caller_give(counts, &c.counts, "check_counts", &err);
	if (code == 0)
		code = caller_init(&c.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = caller_fini(&c.caller, check_all(&c, path, &err));
	if (counts)
		caller_give(counts, &c.counts, "check_counts", &err);
	return give_error(error, &err, code);
}
