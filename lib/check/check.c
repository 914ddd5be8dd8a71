/* unshard_check: what is wrong with the checkpoints below a directory, each with what to do. Looks
 * for directories by name too: what was never saved is no checkpoint to anybody else. */
#include "check/checking.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "check/leftover.h"
#include "files/lightning_file.h"
#include "files/resume_files.h"
#include "files/trainer_state.h"
#include "files/beside.h"
#include "ranks/tracker.h"

enum { MAX_WALK_DEPTH = 64, MAX_LEFTOVER_DEPTH = 4, MAX_STATE_BYTES = 64 << 20 };

int checking_found(struct checking *c, const char *check, enum unshard_severity severity,
		   const char *fmt, ...)
{
	char line[2048];
	struct unshard_finding f = { c->path, check, severity, line };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (severity == UNSHARD_PROBLEM)
		c->counts.problems++;
	else
		c->counts.notes++;
	return c->visit(c->ctx, &f);
}

const char *checking_name(const struct checking *c)
{
	return uns_path_name(*c->path ? c->path : uns_root_path(c->u->root));
}

/* -- what the session already knows -- */

/* The catalog's own problem that a line tells; NULL = a view's. */
static const struct uns_problem *problem_of(const struct uns_catalog *cat, const char *line)
{
	size_t i;

	for (i = 0; cat && i < cat->n_problems; i++)
		if (strcmp(cat->problems[i].text, line) == 0)
			return &cat->problems[i];
	return NULL;
}

static int check_line(struct checking *c, const struct uns_problem *problem, const char *line)
{
	/* With a code: of the source, in a way that no view minds. */
	if (problem && problem->scope == UNS_SCOPE_NOTE && !problem->code)
		return checking_found(c, "note", UNSHARD_NOTE, "%s", line);
	if (problem && problem->code == -ENOENT)
		return checking_found(c, "tracker", UNSHARD_PROBLEM, "%s", line);
	/* Sound, for all that is known, and in a form that some view cannot be made of. */
	if (problem && problem->code == -ENOTSUP)
		return checking_found(c, "not_supported", UNSHARD_NOTE, "%s", line);
	/* Sentences that tell what happened and leave open what to do. */
	if (problem && problem->code == -ENODATA && !strstr(line, "copy "))
		return checking_found(
			c, "damaged", UNSHARD_PROBLEM,
			"%s; copy it back from the training machine, or go on from the "
			"checkpoint before it",
			line);
	return checking_found(c, "damaged", UNSHARD_PROBLEM, "%s", line);
}

static int check_problems(struct checking *c, const struct uns_catalog *cat, char *lines)
{
	char *rest = NULL, *line;
	int code = 0;

	for (line = strtok_r(lines, "\n", &rest); line && code == 0;
	     line = strtok_r(NULL, "\n", &rest))
		code = check_line(c, problem_of(cat, line), line);
	return code;
}

/* -- what a Trainer wants to resume from -- */

struct subject {
	const struct place *place;
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
	const char *framework = cat->facts.framework;

	return (framework && uns_str_starts(framework, "Hugging Face Trainer")) ||
	       uns_checkpoint_name_of(checking_name(c)) == UNS_NAME_TRAINER;
}

static int check_trainer_state(struct checking *c, const struct subject *s)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = uns_path_join(&arena, c->path, "trainer_state.json");
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	if (!s->trainer || !path)
		return path ? 0 : -ENOMEM;
	if (!uns_listing_find(&s->list, "trainer_state.json"))
		return checking_found(
			c, "trainer_state", s->optimizer ? UNSHARD_PROBLEM : UNSHARD_NOTE,
			"%s has no trainer_state.json: a Trainer that resumes from it fails "
			"with FileNotFoundError; copy it back from the training machine, or "
			"resume from a mount, whose view full makes one",
			checking_name(c));
	code = uns_root_read_file(c->u->root, path, MAX_STATE_BYTES, &arena, &text, NULL, &why);
	if (code < 0 && !uns_code_is_finding(code))
		return checking_found(c, "unreadable", UNSHARD_PROBLEM,
				      "%s: it was not checked", why.text);
	if (code == 0 &&
	    uns_trainer_state_check((const char *)text.p, uns_span_left(&text), NULL, &why) == 0)
		return 0;
	return checking_found(
		c, "trainer_state", UNSHARD_PROBLEM,
		"a Trainer cannot resume from trainer_state.json of %s: %s; copy it back from "
		"the training machine, or resume from a mount, whose view full makes one",
		checking_name(c), why.text);
}

static int check_both(struct checking *c, const struct subject *s)
{
	if (!s->trainer || s->optimizer == s->scheduler || has_deepspeed_dir(&s->list))
		return 0;
	if (s->optimizer)
		return checking_found(
			c, "scheduler", UNSHARD_PROBLEM,
			"%s has an optimizer and no scheduler.pt: a Trainer restores both or "
			"neither, so both would silently start afresh; copy scheduler.pt back "
			"from the training machine",
			checking_name(c));
	return checking_found(
		c, "optimizer", UNSHARD_PROBLEM,
		"%s has scheduler.pt and no optimizer: a Trainer restores both or neither, so "
		"both would silently start afresh; copy optimizer_0 (or optimizer.pt, "
		"optimizer.bin) back from the training machine",
		checking_name(c));
}

/* -- Lightning -- */

/* Each strategy says it in its own way (lightning 2.2 to 2.6). */
static int check_weights_only(struct checking *c, const struct subject *s)
{
	if (!uns_lightning_is_weights_only(s->cat))
		return 0;
	return checking_found(
		c, "weights_only", UNSHARD_NOTE,
		"%s was saved with save_weights_only: trainer.fit cannot go on from it (KeyError "
		"'optimizer_0' or 'optimizer_states', \"contains only the model\"); a Trainer on "
		"one device goes on, with fresh optimizers, from a mount's view full, one with "
		"FSDPStrategy from full-fsdp",
		checking_name(c));
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
				c, "rng", UNSHARD_PROBLEM,
				"%s of %s is missing: there are %zu of %" PRId64
				" ranks' random states, and rank %" PRId64
				" would go on with others; copy it back from the training "
				"machine",
				name, checking_name(c), r->n, r->ranks, i);
	}
	return 0;
}

static int check_rng(struct checking *c, const struct subject *s)
{
	const struct rng r = rng_of(&s->list);
	int64_t writers = writers_of(s->cat);

	if (!r.ranks && s->trainer && s->optimizer)
		return checking_found(
			c, "rng", UNSHARD_NOTE,
			"%s has no rng_state files: a Trainer that resumes from it shuffles and "
			"drops out differently, and only an info line says so; copy them back "
			"from the training machine",
			checking_name(c));
	if (!r.ranks || strcmp(s->place->format->name, "hf_fsdp") != 0)
		return 0;
	if ((int64_t)r.n < r.ranks)
		return first_missing(c, s, &r);
	if (writers > r.ranks)
		return checking_found(
			c, "rng", UNSHARD_PROBLEM,
			"the shards of %s are of %" PRId64 " ranks and its random states of "
			"%" PRId64 ": copy the other ranks' %s*%s back, or the directory mixes "
			"two saves",
			checking_name(c), writers, r.ranks, r.prefix, r.suffix);
	if (writers && writers < r.ranks)
		return checking_found(
			c, "rng", UNSHARD_NOTE,
			"%s has random states of %" PRId64 " ranks and shards of %" PRId64
			": unless those ranks had nothing to write, the directory mixes two "
			"saves",
			checking_name(c), r.ranks, writers);
	return 0;
}

/* -- config.json -- */

/* companions.c's notes say which config.json was looked at and not taken. */
static int rejected_configs(struct checking *c, const struct subject *s, size_t *n)
{
	size_t i;
	int code = 0;

	for (i = 0; i < s->snap->n_notes && code == 0; i++) {
		if (!uns_str_starts(s->snap->note[i], "config.json of "))
			continue;
		++*n;
		code = checking_found(c, "config",
				      s->snap->config.p ? UNSHARD_NOTE : UNSHARD_PROBLEM, "%s",
				      s->snap->note[i]);
	}
	return code;
}

static int check_config(struct checking *c, const struct subject *s)
{
	const char *framework = s->cat->facts.framework;
	struct uns_err why = { 0 };
	size_t n_rejected = 0;
	int code = rejected_configs(c, s, &n_rejected);

	if (code)
		return code;
	if (s->snap->config.p && uns_config_check(&s->snap->config_facts, s->cat, &why) < 0)
		return checking_found(
			c, "config", UNSHARD_PROBLEM,
			"config.json does not fit the weights of %s: %s; put the config.json "
			"that the run was started with beside it, or mount with -o model=DIR",
			checking_name(c), why.text);
	if (s->snap->config.p || n_rejected || !framework ||
	    !uns_str_starts(framework, "Hugging Face"))
		return 0;
	return checking_found(
		c, "config", UNSHARD_NOTE,
		"there is no config.json beside the weights of %s: from_pretrained needs one; "
		"put the model's config.json and tokenizer into the run directory, or mount "
		"with -o model=DIR",
		checking_name(c));
}

/* -- one checkpoint -- */

static int saving(struct checking *c)
{
	return checking_found(c, "saving", UNSHARD_NOTE,
			      "%s changed less than %" PRId64
			      " s ago and its save has not ended: check it "
			      "again later (-o settle=)",
			      checking_name(c), c->u->opt.settle_ns / 1000000000);
}

static int check_opened(struct checking *c, struct subject *s, size_t problems_before)
{
	int code;

	s->cat = s->snap->cat;
	s->trainer = is_trainer(c, s->cat);
	s->optimizer = named_optimizer(s->cat);
	s->scheduler = uns_resume_has_scheduler(s->cat);
	code = check_trainer_state(c, s);
	if (code == 0)
		code = check_both(c, s);
	if (code == 0)
		code = check_weights_only(c, s);
	if (code == 0)
		code = check_rng(c, s);
	if (code == 0)
		code = check_config(c, s);
	/* What a Trainer leaves out was said above; others do not mark the end of a save. */
	if (code == 0 && !place_finished(c->u, s->place) && c->counts.problems == problems_before)
		code = checking_found(
			c, "unfinished", UNSHARD_NOTE,
			"nothing in %s says that its save ended, though what is there is whole: "
			"if a file that the script saves last is missing, go on from the "
			"checkpoint before it",
			checking_name(c));
	return code;
}

static int check_snapshot(struct checking *c, struct place *place, struct snapshot *snap,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text lines = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct subject s = { .place = place, .snap = snap };
	size_t n_serious, before = c->counts.problems;
	int code;

	UNS_TRY(problems_text(c->u, place, &lines, &n_serious, err));
	if (!place_finished(c->u, place) && place_unsettled(c->u, place))
		return saving(c);
	code = lines.p ? check_problems(c, snap ? snap->cat : NULL, lines.p) : 0;
	if (code || !snap)
		return code;
	UNS_TRY(uns_root_list(c->u->root, place->path, &arena, &s.list, err));
	code = check_opened(c, &s, before);
	return code == 0 && c->deep ? check_deep(c, snap, err) : code;
}

static int check_checkpoint(struct checking *c, struct place *place, struct uns_err *err)
{
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	int code = snapshot_get(c->u, place, &snap, &why);

	if (code == -ENOMEM)
		return uns_fail(err, code, "out of memory");
	c->counts.checkpoints++;
	code = check_snapshot(c, place, code < 0 ? NULL : snap, err);
	snapshot_put(c->u, snap);
	return code;
}

/* -- directories that only have the name -- */

static int count_files(struct checking *c, struct uns_leftover *l, struct uns_arena *arena,
		       const char *path, int depth, struct uns_err *err)
{
	struct uns_listing list;
	const char *child;
	size_t i;

	UNS_TRY(uns_root_list(c->u->root, path, arena, &list, err));
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

static bool changed_lately(const struct unshard *u, const struct place *place)
{
	const struct uns_identity *id = &place->stat.id;
	const struct place at = { .newest_ns = id->mtime_ns > id->ctime_ns ? id->mtime_ns
									   : id->ctime_ns };

	return place_unsettled(u, &at);
}

static int check_leftover(struct checking *c, const struct place *place,
			  enum uns_checkpoint_name name, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_leftover l = { .name = name };

	c->path = place->path;
	l.path = checking_name(c);
	if (changed_lately(c->u, place))
		return saving(c);
	UNS_TRY(count_files(c, &l, &arena, place->path, 0, err));
	uns_leftover_sentence(&l, &text);
	if (text.failed)
		return uns_oom(err);
	return checking_found(c, uns_leftover_check(&l), l.unread ? UNSHARD_NOTE : UNSHARD_PROBLEM,
			      "%s", text.p);
}

/* -- the walk -- */

static int walk(struct checking *c, const char *path, int depth, struct uns_err *err);

static int check_trackers(struct checking *c, const char *path, const struct uns_listing *list,
			  struct uns_arena *arena, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const char *const *name = uns_rank_trackers;
	struct uns_err why;
	struct uns_span bytes;
	const char *file;
	int code;

	for (c->path = path; *name; name++) {
		file = uns_path_join(arena, path, *name);
		if (!file)
			return uns_oom(err);
		if (!uns_listing_find(list, *name))
			continue;
		why = (struct uns_err){ 0 };
		code = uns_root_read_file(c->u->root, file, UNS_TRACKER_MAX_BYTES, arena, &bytes,
					  NULL, &why);
		if (code < 0 && !uns_code_is_finding(code))
			UNS_TRY(checking_found(c, "unreadable", UNSHARD_PROBLEM,
					       "%s: it was not checked", why.text));
		if (code < 0)
			continue;
		text.len = 0;
		uns_rank_tracker_check(checking_name(c), *name, bytes, list, &text);
		if (text.failed)
			return uns_oom(err);
		if (text.len)
			UNS_TRY(checking_found(c, "tracker", UNSHARD_PROBLEM, "%s", text.p));
	}
	return 0;
}

static int walk_children(struct checking *c, const char *path, int depth, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list;
	const char *child;
	size_t i;
	int code = 0;

	UNS_TRY(uns_root_list(c->u->root, path, &arena, &list, err));
	code = check_trackers(c, path, &list, &arena, err);
	for (i = 0; i < list.n && code == 0 && depth < MAX_WALK_DEPTH; i++) {
		child = uns_path_join(&arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
		if (list.v[i].kind == UNS_KIND_DIR && !session_hides(c->u, child))
			code = walk(c, child, depth + 1, err);
	}
	return code;
}

/* A plain directory: what is below it, and, where that is nothing, whether its name promised more.
 */
static int walk_plain(struct checking *c, const struct place *place, int depth, struct uns_err *err)
{
	const struct unshard_check_counts before = c->counts;
	enum uns_checkpoint_name name;
	int code = walk_children(c, place->path, depth, err);

	if (code)
		return code;
	c->path = place->path;
	name = uns_checkpoint_name_of(checking_name(c));
	if (name == UNS_NAME_OTHER || c->counts.checkpoints > before.checkpoints)
		return 0;
	/* Told of a directory below it already: checkpoint-2/global_step2. */
	if (c->counts.problems + c->counts.notes > before.problems + before.notes)
		return 0;
	return check_leftover(c, place, name, err);
}

static int walk(struct checking *c, const char *path, int depth, struct uns_err *err)
{
	struct place *place;
	int code;

	UNS_TRY(place_get(c->u, path, &place, err));
	c->path = place->path;
	if (c->progress)
		c->progress(c->ctx, ++c->n_dirs, c->counts.checkpoints);
	code = place->format ? check_checkpoint(c, place, err) : walk_plain(c, place, depth, err);
	place_put(c->u, place);
	return code;
}

static int check(struct checking *c, const char *path, struct unshard_check_counts *counts,
		 struct unshard_error *error)
{
	struct uns_err err = { 0 };
	int code = walk(c, path, 0, &err);

	c->path = path;
	if (code == 0 && c->counts.checkpoints + c->counts.problems + c->counts.notes == 0)
		code = checking_found(
			c, "nothing", UNSHARD_PROBLEM,
			"there is no checkpoint below %s: nothing was saved yet, or the saves "
			"failed (FSDP SHARDED_STATE_DICT with save_only_model leaves nothing "
			"before transformers 4.50)",
			*path ? path : uns_root_path(c->u->root));
	if (counts)
		*counts = c->counts;
	return give_error(error, &err, code);
}

int unshard_check(unshard *u, const char *path, unshard_check_visit *visit,
		  void (*progress)(void *ctx, size_t directories, size_t checkpoints), void *ctx,
		  struct unshard_check_counts *counts, struct unshard_error *error)
{
	struct checking c = { .u = u, .visit = visit, .progress = progress, .ctx = ctx };

	return check(&c, path, counts, error);
}

int unshard_check_deep(unshard *u, const char *path, unshard_check_visit *visit,
		       void (*progress)(void *ctx, size_t directories, size_t checkpoints),
		       bool (*reading)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
		       void *ctx, struct unshard_check_counts *counts, struct unshard_error *error)
{
	struct checking c = { .u = u,
			      .visit = visit,
			      .progress = progress,
			      .deep = true,
			      .reading = reading,
			      .ctx = ctx };

	return check(&c, path, counts, error);
}
