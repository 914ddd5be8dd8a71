/* unshard_check: what is wrong with the checkpoints below a directory, each with what to do. Looks
 * for directories by name too: what was never saved is no checkpoint to anybody else. */
#include "check/checking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "check/leftover.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"
#include "files/beside.h"
#include "files/memory_names.h"
#include "ranks/tracker.h"
#include "session/shows.h"

enum { MAX_WALK_DEPTH = 64, MAX_LEFTOVER_DEPTH = 4, MAX_STATE_BYTES = 64 << 20 };

/* A directory that cannot be read, below the one that was asked for: a finding, and the walk goes on. One that
 * was deleted meanwhile is no finding. */
static int visit_unreadable(struct checking *c, const char *path, int depth,
			    const struct uns_err *why, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_finding *f = reason_of_directory(path, c->u, why, &arena);

	if (!depth || !f)
		return uns_fail_copy(err, why);
	if (why->code == -ENOENT || why->code == -ENOTDIR)
		return 0;
	c->path = path;
	return checking_hand_over(c, &(struct reason){ .finding = f }, UNS_PROBLEM, false);
}

/* What opening the checkpoint found out. */
static int check_reasons(struct checking *c, const struct reasons *reasons)
{
	size_t i;
	int code = 0;

	for (i = 0; i < reasons->n && code == 0; i++)
		code = checking_hand_over(c, &reasons->v[i], reasons->v[i].finding->severity,
			     !reasons->v[i].view);
	return code;
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
		if (uns_str_starts(cat->companions[i].name, "optimizer"))
			return true;
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role))
			return true;
	return false;
}

/* DeepSpeed keeps its optimizer in a directory of its own. */
static bool has_deepspeed_dir(const struct uns_listing *list)
{
	size_t i;

	for (i = 0; i < list->n; i++)
		if (list->v[i].kind == UNS_KIND_DIR &&
		    uns_str_starts(list->v[i].name, "global_step"))
			return true;
	return false;
}

static bool is_trainer(const struct checking *c, const struct uns_catalog *cat)
{
	return cat->summary.of_trainer ||
	       uns_checkpoint_name_of(checking_name(c)) == UNS_NAME_TRAINER;
}

/* A file that cannot be read at this moment may be sound: the checkpoint could not be checked, no more. */
static int unreadable(struct checking *c, const struct uns_err *why)
{
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_CHECKPOINT_UNREADABLE,
					     .scope = UNS_SCOPE_OPTIMIZER, .code = why->code,
					     .arg = { { "cause", uns_str(why->text) } }));
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
		return checking_found_as(c, UNS_FINDING(.id = UNS_FOUND_TRAINER_STATE_MISSING,
							.scope = UNS_SCOPE_OPTIMIZER, .file = path),
					 s->optimizer ? UNS_PROBLEM : UNS_NOTE);
	if (uns_root_read_file(c->u->root, path, MAX_STATE_BYTES, &arena, &text, NULL, &why) == 0 &&
	    uns_trainer_state_check((const char *)text.p, uns_span_left(&text), NULL, &why) == 0)
		return 0;
	if (!uns_code_is_finding(why.code))
		return unreadable(c, &why);
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_TRAINER_STATE_UNUSABLE,
					     .scope = UNS_SCOPE_OPTIMIZER, .file = path,
					     .arg = { { "cause", uns_str(why.text) } }));
}

static int check_both(struct checking *c, const struct subject *s)
{
	if (!s->trainer || s->optimizer == s->scheduler || has_deepspeed_dir(&s->list))
		return 0;
	return checking_found(c, UNS_FINDING(.id = s->optimizer ? UNS_FOUND_SCHEDULER_MISSING
								: UNS_FOUND_OPTIMIZER_MISSING,
					     .scope = UNS_SCOPE_OPTIMIZER));
}

/* -- Lightning -- */

static int check_weights_only(struct checking *c, const struct subject *s)
{
	if (!s->cat->summary.is_weights_only)
		return 0;
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_SAVED_WEIGHTS_ONLY));
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

static int64_t writers_of(const struct uns_catalog *cat)
{
	int64_t highest = -1;
	size_t i;

	for (i = 0; i < cat->n_pieces; i++)
		if (cat->pieces[i].rank > highest)
			highest = cat->pieces[i].rank;
	return highest + 1;
}

static int first_missing(struct checking *c, const struct subject *s, const struct rng *r)
{
	char name[64];
	int64_t i;

	for (i = 0; i < r->ranks; i++) {
		snprintf(name, sizeof(name), "%s%" PRId64 "%s", r->prefix, i, r->suffix);
		if (!uns_listing_find(&s->list, name))
			return checking_found(
				c, UNS_FINDING(.id = UNS_FOUND_RNG_FILE_MISSING,
					       .scope = UNS_SCOPE_OPTIMIZER, .file = name,
					       .rank = uns_rank(i), .found = uns_num(r->n),
					       .expected = uns_num((uint64_t)r->ranks)));
	}
	return 0;
}

static int check_rng(struct checking *c, const struct subject *s)
{
	const struct rng r = rng_of(&s->list);
	int64_t writers = writers_of(s->cat);

	if (!r.ranks && s->trainer && s->optimizer)
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_RNG_MISSING));
	if (!r.ranks || !s->cat->summary.has_rng_of_ranks)
		return 0;
	if ((int64_t)r.n < r.ranks)
		return first_missing(c, s, &r);
	if (writers > r.ranks)
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_RNG_OF_FEWER_RANKS,
						     .scope = UNS_SCOPE_OPTIMIZER,
						     .expected = uns_num((uint64_t)writers),
						     .found = uns_num((uint64_t)r.ranks),
						     .arg = { { "prefix", uns_str(r.prefix) },
							      { "suffix", uns_str(r.suffix) } }));
	if (writers && writers < r.ranks)
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_RNG_OF_MORE_RANKS,
						     .expected = uns_num((uint64_t)writers),
						     .found = uns_num((uint64_t)r.ranks)));
	return 0;
}

/* -- config.json -- */

/* Which config.json was looked at and not taken, or taken for weights of other names, by companions.c's notes. */
static int config_notes(struct checking *c, const struct subject *s, size_t *n_rejected)
{
	size_t i;
	int code = 0;

	for (i = 0; i < s->snap->beside.notes.n && code == 0; i++) {
		const enum uns_finding_id id = s->snap->beside.notes.v[i].id;
		const bool rejected = id == UNS_FOUND_CONFIG_UNUSABLE || id == UNS_FOUND_CONFIG_DOES_NOT_FIT;

		if (!rejected && id != UNS_FOUND_CONFIG_HAS_OTHER_NAMES)
			continue;
		*n_rejected += rejected;
		code = checking_found_as(c, &s->snap->beside.notes.v[i],
					 s->snap->beside.config.p ? UNS_NOTE : UNS_PROBLEM);
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
		return checking_found(c, UNS_FINDING(.id = UNS_FOUND_CONFIG_UNLIKE_WEIGHTS,
						     .arg = { { "cause", uns_str(why.text) } }));
	if (s->snap->beside.config.p || n_rejected || !s->cat->summary.wants_config)
		return 0;
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_CONFIG_MISSING));
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
	return checking_found(c, UNS_FINDING(.id = UNS_FOUND_RESUME_LEAVES_NEW, .tensor = names.first,
					     .found = uns_str(config->model_type),
					     .arg = { { "n", uns_num(names.n_renamed) } }));
}

/* -- one checkpoint -- */

static int check_opened(struct checking *c, struct subject *s, size_t problems_before)
{
	static int (*const rules[])(struct checking *, const struct subject *) = {
		check_trainer_state, check_both, check_weights_only, check_rng, check_config,
		check_names
	};
	size_t i;
	int code = 0;

	s->cat = s->snap->cat;
	s->trainer = is_trainer(c, s->cat);
	s->optimizer = named_optimizer(s->cat);
	s->scheduler = uns_resume_has_scheduler(s->cat);
	for (i = 0; i < sizeof(rules) / sizeof(*rules) && code == 0; i++)
		code = rules[i](c, s);
	/* What a Trainer leaves out was found above; others do not mark the end of a save. */
	if (code == 0 && !record_finished(c->u, s->record) && c->counts.problems == problems_before)
		code = checking_found(c, UNS_FINDING(.id = UNS_FOUND_SAVE_END_UNKNOWN));
	return code;
}

static int check_snapshot(struct checking *c, struct dir_record *record, struct snapshot *snap,
			  struct uns_err *err)
{
	UNS_CLEANUP(reasons_fini) struct reasons reasons = { 0 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct subject s = { .record = record, .snap = snap };
	size_t before = c->counts.problems;
	struct uns_err why = { 0 };
	int code;

	UNS_TRY(reasons_find(c->u, record, &reasons, err));
	code = check_reasons(c, &reasons);
	if (code || !snap || reasons.saving)
		return code;
	if (record->is.stat.kind == UNS_KIND_DIR &&
	    uns_root_list(c->u->root, record->path, &arena, &s.list, &why) < 0)
		return visit_unreadable(c, record->path, 1, &why, err);
	code = check_opened(c, &s, before);
	return code == 0 && c->deep ? check_deep(c, snap, err) : code;
}

static int check_checkpoint(struct checking *c, struct dir_record *record, struct uns_err *err)
{
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	int code = snapshot_get(c->u, record, &snap, &why);

	if (code == -ENOMEM)
		return uns_fail(err, code, "out of memory");
	c->counts.checkpoints++;
	show_handed_over(c->u, record);
	code = check_snapshot(c, record, code < 0 ? NULL : snap, err);
	snapshot_put(c->u, snap);
	return code;
}

/* -- directories that only have the name -- */

/* The walk has reported a directory that cannot be listed; here it counts as a file that may be weights. */
static int count_files(struct checking *c, struct uns_leftover *l, struct uns_arena *arena,
		       const char *path, int depth, struct uns_err *err)
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
		child = uns_path_join(arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
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

static bool changed_lately(const struct unshard *u, const struct dir_record *record)
{
	const struct uns_identity *id = &record->is.stat.id;

	return records_changed_lately(&u->records, id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns);
}

static int check_leftover(struct checking *c, const struct dir_record *record,
			  enum uns_checkpoint_name name, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_leftover l = { .name = name };
	struct uns_finding f;

	c->path = record->path;
	if (changed_lately(c->u, record)) {
		f = show_saving(c->u, record, NULL);
		return checking_found(c, &f);
	}
	UNS_TRY(count_files(c, &l, &arena, record->path, 0, err));
	return checking_found(c, UNS_FINDING(.id = uns_leftover_id(&l), .file = l.some_file));
}

/* -- the walk -- */

static int walk(struct checking *c, const char *path, int depth, struct uns_err *err);

static int check_trackers(struct checking *c, const char *path, const struct uns_listing *list,
			  struct uns_arena *arena, struct uns_err *err)
{
	const char *const *name = uns_rank_trackers;
	struct uns_finding f;
	struct uns_err why;
	struct uns_span bytes;
	const char *file;

	for (c->path = path; *name; name++) {
		file = uns_path_join(arena, path, *name);
		if (!file)
			return uns_oom(err);
		if (!uns_listing_find(list, *name))
			continue;
		why = (struct uns_err){ 0 };
		if (uns_root_read_file(c->u->root, file, UNS_TRACKER_MAX_BYTES, arena, &bytes, NULL,
				       &why) < 0) {
			if (!uns_code_is_finding(why.code))
				UNS_TRY(unreadable(c, &why));
			continue;
		}
		if (uns_rank_tracker_check(*name, bytes, list, arena, &f))
			continue;
		f.file = file;
		UNS_TRY(checking_found(c, &f));
	}
	return 0;
}

static int walk_children(struct checking *c, const char *path, int depth, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	const char *child;
	size_t i;
	int code = 0;

	if (uns_root_list(c->u->root, path, &arena, &list, &why) < 0)
		return visit_unreadable(c, path, depth, &why, err);
	code = check_trackers(c, path, &list, &arena, err);
	for (i = 0; i < list.n && code == 0 && depth < MAX_WALK_DEPTH; i++) {
		child = uns_path_join(&arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
		if (session_walks_into(c->u, child, list.v[i].kind))
			code = walk(c, child, depth + 1, err);
	}
	return code;
}

/* A directory that is no checkpoint: check what is below it. If nothing is, and it is named like a checkpoint,
 * that is a finding. */
static int walk_plain(struct checking *c, const struct dir_record *record, int depth, struct uns_err *err)
{
	const struct unshard_check_counts before = c->counts;
	enum uns_checkpoint_name name;
	struct uns_finding f;
	int code = walk_children(c, record->path, depth, err);

	if (code)
		return code;
	c->path = record->path;
	if (records_in_the_making(&c->u->records, record)) {
		f = show_saving(c->u, record, NULL);
		return checking_found(c, &f);
	}
	name = uns_checkpoint_name_of(checking_name(c));
	if (name == UNS_NAME_OTHER || c->counts.checkpoints > before.checkpoints)
		return 0;
	/* A directory below it has a finding already: checkpoint-2/global_step2. */
	if (c->counts.problems + c->counts.notes > before.problems + before.notes)
		return 0;
	return check_leftover(c, record, name, err);
}

static int walk(struct checking *c, const char *path, int depth, struct uns_err *err)
{
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code;

	if (record_get(c->u, path, &record, &why) < 0)
		return visit_unreadable(c, path, depth, &why, err);
	c->path = record->path;
	if (caller_scanned(&c->caller, ++c->n_dirs, c->counts.checkpoints))
		code = c->caller.answer;
	else
		code = record->is.format ? check_checkpoint(c, record, err) : walk_plain(c, record, depth, err);
	record_put(c->u, record);
	return code;
}

static int check(struct checking *c, const char *path, struct uns_err *err)
{
	int code = walk(c, path, 0, err);

	c->path = path;
	if (code == 0 && c->counts.checkpoints + c->counts.problems + c->counts.notes == 0)
		code = checking_found(c, UNS_FINDING(.id = UNS_FOUND_NOTHING_FOUND,
						     .file = *path ? path : uns_root_path(c->u->root)));
	return code;
}

int unshard_check(unshard *u, const char *path, unsigned flags, const struct unshard_calls *calls,
		  struct unshard_check_counts *counts, struct unshard_error *error)
{
	struct checking c = { .u = u, .deep = flags & UNSHARD_DEEP,
			      .counts = CALLER_OWN(struct unshard_check_counts) };
	struct uns_err err = { 0 };
	int code = caller_flags(flags, UNSHARD_DEEP, &err);

	if (code == 0 && counts) /* a wrong size is said before the work */
		code = caller_give(counts, &c.counts, "check_counts", &err);
	if (code == 0)
		code = caller_init(&c.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = caller_fini(&c.caller, check(&c, path, &err));
	if (counts)
		caller_give(counts, &c.counts, "check_counts", &err);
	return give_error(error, &err, code);
}
