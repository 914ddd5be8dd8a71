/* unshard_repair: plan, write beside OUT, check the result as any other checkpoint, rename. */
#include "repair/repairing.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "io/mounts.h"
#include "out/disk.h"
#include "out/target.h"

static void repair_fini(struct repair *r)
{
	uns_map_fini(&r->by_path);
	uns_arena_fini(&r->arena);
}

/* -- what SOURCE has, and what is wrong with it -- */

static int visit_checkpoint(void *ctx, struct dir_record *record, struct uns_err *err)
{
	struct repair *r = ctx;

	UNS_TRY_ALLOC(UNS_ARENA_ROOM(&r->arena, r->checkpoint, r->n_checkpoints, r->cap_checkpoints), err);
	r->checkpoint[r->n_checkpoints++] = (struct repair_checkpoint){ .path = uns_arena_str(&r->arena, record->path),
									.family = record->is.format->family };
	return uns_arena_check(&r->arena, err);
}

struct problems {
	struct repair *r;
	bool of_copy;      /* which has no plan: the first problem shows that it is not sound */
	const char *first; /* of those that are of no checkpoint in the plan: nothing is done about them */
	const struct repair_watch *watch;
};

static int note_problem(void *ctx, const struct unshard_finding *f)
{
	struct problems *problems = ctx;
	struct repair *r = problems->r;
	struct repair_checkpoint *p = r->checkpoint, *end = p + r->n_checkpoints;
	bool saving = strcmp(f->check, "saving") == 0; /* there is no sound copy of it yet */
	struct repair_stale stale;
	const char *text;

	if (f->severity == UNSHARD_NOTE)
		return 0;
	text = uns_arena_str(&r->arena, f->text);
	if (!text)
		return -ENOMEM;
	if (!problems->of_copy && f->file && strcmp(f->check, "tracker") == 0) {
		stale = (struct repair_stale){ uns_arena_str(&r->arena, f->file), text };
		if (!stale.path || !UNS_ARENA_ROOM(&r->arena, r->stale, r->n_stale, r->cap_stale))
			return -ENOMEM;
		r->stale[r->n_stale++] = stale;
		return 0;
	}
	for (; !problems->of_copy && !saving && p < end; p++) {
		if (strcmp(p->path, f->path) != 0)
			continue;
		if (strcmp(f->check, "trainer_state") == 0)
			p->lacks_state = true;
		else
			p->other_problem = true;
		if (!p->problem || strcmp(f->check, "trainer_state") != 0)
			p->problem = text;
		return 0;
	}
	if (!problems->of_copy && strcmp(f->id, "unreadable_directory") == 0)
		return repair_leave_out(r, f->path, text);
	if (!problems->first)
		problems->first = text;
	return 0;
}

/* Reading is no progress of the writing: only whether to give up is asked. */
static int checking_asked(void *ctx, const struct unshard_progress *progress)
{
	const struct repair_watch *w = ((struct problems *)ctx)->watch;

	if (progress->phase == UNSHARD_READING &&
	    caller_progress(w->caller, UNSHARD_WRITING, w->done_bytes, w->total_bytes))
		return w->caller->answer;
	return 0;
}

static int check_directory(struct unshard *u, const char *path, bool deep, struct problems *problems,
			   struct uns_err *err)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = problems, .progress = checking_asked,
					     .finding = note_problem };
	struct unshard_error why = { 0 };
	int code = unshard_check(u, path, deep ? UNSHARD_DEEP : 0, &calls, NULL, &why);

	/* Ended by the caller: caller_fini hands on with what. */
	if (code > 0)
		return uns_fail(err, -EINTR, "interrupted; nothing was kept");
	return code < 0 ? uns_fail(err, code, "%s", why.text[0] ? why.text : "out of memory") : 0;
}

/* -- planning -- */

static int find_tracker(struct repair *r, struct repair_checkpoint *p, const struct uns_summary *summary)
{
	unsigned up;

	p->tracker = summary->tracker;
	p->run = summary->tracker ? p->path : NULL;
	for (up = summary->tracker_up; p->run && up; up--) {
		if (!*p->run)
			p->run = NULL; /* above SOURCE */
		else if (!(p->run = uns_path_parent(&r->arena, p->run)))
			return -ENOMEM;
	}
	return 0;
}

static int plan_checkpoint(struct repair *r, struct repair_checkpoint *p, struct uns_err *err)
{
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	struct dir_record *record;
	int code;

	UNS_TRY(repair_worlds(r, p, err));
	UNS_TRY(record_get(r->u, p->path, &record, err));
	code = snapshot_get(r->u, record, &snap, &why);
	if (code == 0) {
		code = find_tracker(r, p, &snap->cat->summary) < 0 ? uns_oom(err) : repair_dtypes(r, p, snap->cat, err);
		if (code == 0)
			code = repair_trainer_state(r, p, record, snap, err);
		if (code == 0)
			code = repair_find_weights(r, p, record, err);
		if (code == 0)
			p->changed |= p->state_made && !p->other_problem;
	} else if (code != -ENOMEM) {
		code = 0; /* what cannot be opened at all is not repaired */
	}
	snapshot_put(r->u, snap);
	record_put(r->u, record);
	return code;
}

static bool is_lost(const struct repair_checkpoint *p)
{
	return p->problem && !p->changed && !p->dropped;
}

/* The directory that was saved as one, which may hold several checkpoints (veRL's global_step_N/actor). */
static const char *save_of(struct repair *r, const struct repair_checkpoint *p)
{
	const char *rest;

	if (!p->run || strcmp(p->run, p->path) == 0 || !uns_path_within(p->path, p->run))
		return p->path;
	rest = p->path + strlen(p->run) + (*p->run ? 1 : 0);
	return uns_path_join(&r->arena, p->run, uns_arena_strn(&r->arena, rest, strcspn(rest, "/")));
}

static int leave_save_out(struct repair *r, struct repair_checkpoint *lost, struct uns_err *err)
{
	struct repair_file file = { .path = save_of(r, lost), .drop = true };
	struct repair_checkpoint *p = r->checkpoint, *end = p + r->n_checkpoints;

	UNS_TRY_ALLOC(file.path && repair_plan_file(r, &file) == 0, err);
	for (; p < end; p++)
		p->dropped |= uns_path_within(p->path, file.path);
	UNS_TRY_ALLOC(repair_change(r, file.path, UNSHARD_CHANGE_LEFT_OUT, "left out: %s%s", lost->problem,
				    lost->has_weights ? "; its weights can still be used: unshard export writes them"
						      : "") == 0,
		      err);
	return 0;
}

/* A checkpoint that cannot be repaired is not in the copy of its run, as long as another one is. */
static int leave_lost_out(struct repair *r, struct uns_err *err)
{
	size_t i, k, n_lost = 0, n_kept = 0;

	for (i = 0; i < r->n_checkpoints; i++) {
		n_lost += is_lost(&r->checkpoint[i]);
		n_kept += !r->checkpoint[i].dropped && !is_lost(&r->checkpoint[i]);
	}
	if (!n_lost || !n_kept)
		return 0;
	for (i = 0; i < r->n_checkpoints; i++) {
		if (!is_lost(&r->checkpoint[i]))
			continue;
		for (k = 0; k < r->n_checkpoints; k++) /* what is in it is left out with it */
			if (k != i && !r->checkpoint[k].dropped && !is_lost(&r->checkpoint[k]) &&
			    uns_path_within(r->checkpoint[k].path, r->checkpoint[i].path))
				break;
		if (k == r->n_checkpoints && strcmp(r->checkpoint[i].path, r->path) != 0)
			UNS_TRY(leave_save_out(r, &r->checkpoint[i], err));
	}
	return 0;
}

/* Every problem must be one that something is done about; whether that helps is found out by checking the copy. */
static int prove_repairable(struct repair *r, const char *left, struct uns_err *err)
{
	const struct repair_checkpoint *lost = NULL;
	const char *instead = "";
	size_t i;

	for (i = 0; i < r->n_stale && !left; i++)
		if (uns_path_within(r->stale[i].path, r->path) && !repair_file_of(r, r->stale[i].path))
			left = r->stale[i].problem;
	for (i = 0; i < r->n_checkpoints && !left; i++)
		if (is_lost(&r->checkpoint[i])) {
			lost = &r->checkpoint[i];
			left = lost->problem;
		}
	if (lost)
		UNS_TRY(repair_name_instead(r, lost, &instead, err));
	if (left)
		return uns_fail(err, -ENODATA, "no sound copy can be made: %s%s%s%s", left, r->refusal ? "; " : "",
				r->refusal ? r->refusal : "", instead);
	if (!repair_is_needed(r) && r->refusal)
		return uns_fail(err, -ENODATA, "no sound copy can be made: %s", r->refusal);
	return 0;
}

static int repair_plan(struct repair *r, bool deep, const struct repair_watch *watch, struct uns_err *err)
{
	struct walk walk = {
		.u = r->u, .ctx = r, .checkpoint = visit_checkpoint, .unreadable = repair_visit_unreadable
	};
	struct problems problems = { .r = r, .watch = watch };
	size_t i;

	UNS_TRY(walk_checkpoints(&walk, r->path, err));
	if (!r->n_checkpoints)
		return uns_fail(err, -ENODATA, "there is no checkpoint below %s",
				*r->path ? r->path : uns_root_path(r->u->root));
	UNS_TRY(check_directory(r->u, r->path, deep, &problems, err));
	for (i = 0; i < r->n_checkpoints; i++)
		UNS_TRY(plan_checkpoint(r, &r->checkpoint[i], err));
	UNS_TRY(repair_trackers(r, err));
	UNS_TRY(leave_lost_out(r, err));
	return prove_repairable(r, problems.first, err);
}

/* -- writing -- */

/* Checks the copy by a session of its own, as `unshard check` would. */
static int check_copy(struct repair *r, const struct uns_target *t, bool deep, const struct repair_watch *watch,
		      struct uns_err *err)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT,
						 .no_settling = true,
						 .no_store = true,
						 .weight_root = r->u->opt.format.weight_roots,
						 .n_weight_root = r->u->opt.format.n_weight_roots,
						 .log = r->u->log.sink,
						 .log_ctx = r->u->log.ctx,
						 .log_level = (enum unshard_log_level)r->u->log.max_level };
	struct problems problems = { .r = r, .of_copy = true, .watch = watch };
	struct unshard_error why = { 0 };
	unshard *u = NULL;
	int code = unshard_open(t->parent, &options, &u, &why);

	if (code < 0)
		return uns_fail(err, code, "%s", why.text);
	code = check_directory(u, uns_path_name(t->partial), deep, &problems, err);
	unshard_close(u);
	if (code == 0 && problems.first)
		return uns_fail(err, -EBADMSG, "the copy was not sound either and was removed: %s", problems.first);
	return code;
}

enum { ABANDONED_S = 60 }; /* a copy that was begun, and is not locked yet, is younger */

/* Is this what a killed repair left: a copy of a process that has ended? */
static bool is_abandoned(int dir)
{
	struct stat st;

	return fstat(dir, &st) == 0 && st.st_uid == geteuid() &&
	       uns_wall_ns() / 1000000000 - st.st_ctime > ABANDONED_S && flock(dir, LOCK_EX | LOCK_NB) == 0;
}

/* What a killed repair left of this very OUT. What cannot be removed is left for later, and so is all where a lock may
 * be of one host alone: there another host's repair looks abandoned. */
static void remove_abandoned(const struct uns_target *t)
{
	const char *prefix = uns_path_name(t->partial);
	const size_t n = strlen(prefix) - strlen("XXXXXX");
	UNS_CLEANUP(uns_free_p) char *path = NULL;
	DIR *parent = uns_is_local(t->parent) ? opendir(t->parent) : NULL;
	struct dirent *d;
	int dir;

	while (parent && (d = readdir(parent))) {
		if (strncmp(d->d_name, prefix, n) != 0 || strlen(d->d_name) != strlen(prefix))
			continue;
		free(path);
		if (asprintf(&path, "%s/%s", t->parent, d->d_name) < 0) {
			path = NULL;
			break;
		}
		dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir >= 0 && is_abandoned(dir))
			uns_remove_tree(path);
		uns_close_p(&dir);
	}
	if (parent)
		closedir(parent);
}

static int repair_make(struct repair *r, const char *out, bool deep, struct repair_watch *watch, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int lock = -1;
	struct uns_target t;
	struct uns_stat top;
	int code;

	UNS_TRY(uns_target_find(&t, out, ".partial-XXXXXX", r->u->real_root, r->path, err));
	UNS_TRY(repair_plan(r, deep, watch, err));
	if (!repair_is_needed(r))
		return 0;
	UNS_TRY(repair_measure(r, r->path, &watch->total_bytes, err));
	remove_abandoned(&t);
	if (!mkdtemp(t.partial))
		return uns_fail(err, -errno, "%s: %s", t.partial, strerror(errno));
	/* Held while this process lives: another repair does not take it for abandoned. */
	lock = open(t.partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock >= 0)
		flock(lock, LOCK_SH);
	code = caller_writes(watch->caller, t.partial, err);
	if (code == 0)
		code = repair_copy(r, t.partial, watch, err);
	if (code == 0)
		code = check_copy(r, &t, deep, watch, err);
	if (code == 0)
		code = uns_root_stat(r->u->root, r->path, true, &top, err);
	if (code == 0)
		code = uns_target_finish(&t, top.mode, err);
	if (code < 0)
		uns_remove_tree(t.partial);
	return code;
}

/* `code`: how the repair ended. What could not be read is reported even if there is no copy. */
static int changes_hand_over(const struct repair *r, const struct caller *caller, int code)
{
	bool answered = code == 0 || code == -ENODATA || code == -EBADMSG;
	int told = 0;
	size_t i;

	for (i = 0; answered && told == 0 && caller->calls.change && i < r->n_changes; i++)
		if (code == 0 || r->change[i].kind == UNSHARD_CHANGE_UNREADABLE)
			told = caller->calls.change(caller->calls.ctx, &r->change[i]);
	return told ? told : code < 0 ? code : (int)r->n_unread;
}

int unshard_repair(unshard *u, const char *path, const char *out, unsigned flags, const struct unshard_calls *calls,
		   struct unshard_error *error)
{
	UNS_CLEANUP(repair_fini) struct repair r = { .u = u, .path = path };
	struct caller caller;
	struct repair_watch watch = { .caller = &caller };
	struct uns_err err = { 0 };
	int code = caller_flags(flags, UNSHARD_DEEP, &err);

	if (code == 0)
		code = caller_init(&caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = changes_hand_over(&r, &caller, repair_make(&r, out, flags & UNSHARD_DEEP, &watch, &err));
	return give_error(error, &err, caller_fini(&caller, code));
}
