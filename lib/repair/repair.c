/* unshard_repair: plan, write beside OUT, check the result as any other checkpoint, rename. */
#include "repair/repair.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

enum { MAX_WALK_DEPTH = 64 };

static void repair_fini(struct repair *r)
{
	uns_map_fini(&r->by_path);
	uns_arena_fini(&r->arena);
}

/* -- the plan -- */

int repair_change(struct repair *r, const char *path, enum unshard_change_kind kind,
		  const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!UNS_ARENA_ROOM(&r->arena, r->change, r->n_changes, r->cap_changes))
		return -ENOMEM;
	r->change[r->n_changes] = (struct unshard_change){ sizeof(struct unshard_change), path, kind,
							   uns_arena_str(&r->arena, text) };
	return r->change[r->n_changes++].text ? 0 : -ENOMEM;
}

int repair_refuse(struct repair *r, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!r->refusal)
		r->refusal = uns_arena_str(&r->arena, text);
	return r->refusal ? 0 : -ENOMEM;
}

int repair_plan_file(struct repair *r, const struct repair_file *file)
{
	struct repair_file *copy = UNS_NEW(&r->arena, struct repair_file);

	if (!copy)
		return -ENOMEM;
	*copy = *file;
	return uns_map_put(&r->by_path, copy->path, copy, NULL) ? 0 : -ENOMEM;
}

const struct repair_file *repair_file_of(const struct repair *r, const char *path)
{
	return uns_map_get(&r->by_path, path);
}

/* -- what is there, and what is wrong with it -- */

static int add_place(struct repair *r, const struct place *place)
{
	if (!UNS_ARENA_ROOM(&r->arena, r->place, r->n_places, r->cap_places))
		return -ENOMEM;
	r->place[r->n_places] =
		(struct repair_place){ .path = uns_arena_str(&r->arena, place->path),
				       .family = place->format->family };
	return r->place[r->n_places++].path ? 0 : -ENOMEM;
}

static int find_places(struct repair *r, const char *path, int depth, struct uns_err *err);

static int find_below(struct repair *r, const char *path, int depth, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list;
	const char *child;
	size_t i;

	UNS_TRY(uns_root_list(r->u->root, path, &arena, &list, err));
	for (i = 0; i < list.n && depth < MAX_WALK_DEPTH; i++) {
		if (list.v[i].kind != UNS_KIND_DIR)
			continue;
		child = uns_path_join(&arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
		UNS_TRY(find_places(r, child, depth + 1, err));
	}
	return 0;
}

static int find_places(struct repair *r, const char *path, int depth, struct uns_err *err)
{
	struct place *place;
	int code;

	UNS_TRY(place_get(r->u, path, &place, err));
	if (place->format && add_place(r, place) < 0)
		code = uns_oom(err);
	else
		code = place->format ? 0 : find_below(r, path, depth, err);
	place_put(r->u, place);
	return code;
}

/* Problems by the checkpoint that has them; one of a directory without a checkpoint is nobody's. */
struct problems {
	struct repair *r; /* NULL = only the first is asked for */
	const char *nobodys;
	struct uns_arena *arena;
	const struct repair_watch *watch;
};

static int note_problem(void *ctx, const struct unshard_finding *f)
{
	struct problems *p = ctx;
	bool saving = strcmp(f->check, "saving") == 0; /* there is no sound copy of it yet */
	const char *text;
	size_t i;

	if (f->severity != UNSHARD_PROBLEM && !saving)
		return 0;
	/* Of the source: repair_trackers.c looks at them itself. */
	if (p->r && strcmp(f->check, "tracker") == 0)
		return 0;
	text = uns_arena_str(p->arena, f->text);
	if (!text)
		return -ENOMEM;
	for (i = 0; p->r && !saving && i < p->r->n_places; i++) {
		if (strcmp(p->r->place[i].path, f->path) != 0)
			continue;
		if (!p->r->place[i].problem)
			p->r->place[i].problem = text;
		return 0;
	}
	if (!p->nobodys)
		p->nobodys = text;
	return 0;
}

/* Reading is no progress of the writing: only whether to give up is asked. */
static int asked(void *ctx, const struct unshard_progress *progress)
{
	const struct repair_watch *w = ((struct problems *)ctx)->watch;

	if (progress->phase == UNSHARD_READING &&
	    caller_progress(w->caller, UNSHARD_WRITING, w->done_bytes, w->total_bytes))
		return w->caller->answer;
	return 0;
}

static int check(struct unshard *u, const char *path, bool deep, struct problems *problems,
		 struct uns_err *err)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = problems,
					     .progress = asked, .finding = note_problem };
	struct unshard_error why = { 0 };
	int code = unshard_check(u, path, deep ? UNSHARD_DEEP : 0, &calls, NULL, &why);

	/* Ended by the caller: caller_fini hands on with what. */
	if (code > 0)
		return uns_fail(err, -EINTR, "interrupted; nothing was kept");
	return code < 0 ? uns_fail(err, code, "%s", why.text[0] ? why.text : "out of memory") : 0;
}

/* -- planning -- */

static int plan_place(struct repair *r, struct repair_place *p, struct uns_err *err)
{
	struct snapshot *snap = NULL;
	struct uns_err why = { 0 };
	struct place *place;
	int code;

	UNS_TRY(repair_worlds(r, p, err));
	UNS_TRY(place_get(r->u, p->path, &place, err));
	code = snapshot_get(r->u, place, &snap, &why);
	if (code == 0) {
		p->tracker = snap->cat->facts.tracker;
		code = repair_dtypes(r, p, snap->cat, err);
	} else if (code != -ENOMEM) {
		code = 0; /* what cannot be opened at all is not repaired */
	}
	snapshot_put(r->u, snap);
	place_put(r->u, place);
	return code;
}

/* Every problem must be one that something is done about; whether that helps is found out by
 * checking the copy. */
static int gate(const struct repair *r, const char *nobodys, struct uns_err *err)
{
	const char *left = nobodys;
	size_t i;

	for (i = 0; i < r->n_places && !left; i++)
		if (r->place[i].problem && !r->place[i].changed && !r->place[i].dropped)
			left = r->place[i].problem;
	if (left)
		return uns_fail(err, -ENODATA, "no sound copy can be derived: %s%s%s", left,
				r->refusal ? "; " : "", r->refusal ? r->refusal : "");
	if (!r->n_changes && r->refusal)
		return uns_fail(err, -ENODATA, "no sound copy can be derived: %s", r->refusal);
	if (!r->n_changes)
		return uns_fail(
			err, -ENODATA,
			"%s needs no repair: nothing is wrong with it that a copy would not have",
			*r->path ? r->path : uns_root_path(r->u->root));
	return 0;
}

static int plan(struct repair *r, bool deep, const struct repair_watch *watch, struct uns_err *err)
{
	struct problems problems = { .r = r, .arena = &r->arena, .watch = watch };
	size_t i;

	UNS_TRY(find_places(r, r->path, 0, err));
	if (!r->n_places)
		return uns_fail(err, -ENODATA, "there is no checkpoint below %s",
				*r->path ? r->path : uns_root_path(r->u->root));
	UNS_TRY(check(r->u, r->path, deep, &problems, err));
	for (i = 0; i < r->n_places; i++)
		UNS_TRY(plan_place(r, &r->place[i], err));
	UNS_TRY(repair_trackers(r, err));
	return gate(r, problems.nobodys, err);
}

/* -- writing -- */

struct target {
	char out[PATH_MAX];     /* absolute */
	char partial[PATH_MAX]; /* beside it */
	char parent[PATH_MAX];
};

/* Then the rename takes its place. */
static bool is_empty_dir(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir(dir)) != NULL)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (dir)
		closedir(dir);
	return dir && !n;
}

/* OUT does not exist yet, or is empty; its directory is there and not in what is repaired. */
static int find_target(struct repair *r, const char *out, struct target *t, struct uns_err *err)
{
	char copy[PATH_MAX], source[PATH_MAX];
	const char *name;
	size_t n = strlen(out);
	char *slash;

	while (n > 1 && out[n - 1] == '/')
		n--;
	if (!n || n >= sizeof(copy))
		return uns_fail(err, -EINVAL, "the path of the copy is empty or too long");
	memcpy(copy, out, n);
	copy[n] = '\0';
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return uns_fail(err, -EINVAL, "%s: a copy needs a name of its own", out);
	if (slash)
		*slash = '\0';
	if (!realpath(!slash ? "." : slash == copy ? "/" : copy, t->parent))
		return uns_fail(err, -errno, "%s: its directory: %s", out, strerror(errno));
	if (snprintf(source, sizeof(source), "%s%s%s", r->u->real_root, *r->path ? "/" : "",
		     r->path) >= (int)sizeof(source) ||
	    snprintf(t->out, sizeof(t->out), "%s/%s", t->parent, name) >= (int)sizeof(t->out) ||
	    snprintf(t->partial, sizeof(t->partial), "%s.partial-XXXXXX", t->out) >=
		    (int)sizeof(t->partial))
		return uns_fail(err, -ENAMETOOLONG, "%s: the path is too long", out);
	if (uns_path_within(t->out, source))
		return uns_fail(err, -EINVAL, "%s lies in %s, which is never written to", out,
				source);
	if (faccessat(AT_FDCWD, t->out, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && !is_empty_dir(t->out))
		return uns_fail(err, -EEXIST, "%s exists and is not an empty directory", out);
	return 0;
}

/* As anybody would check it: by a session of its own. */
static int check_copy(struct repair *r, const struct target *t, bool deep,
		      const struct repair_watch *watch, struct uns_err *err)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT,
						 .no_settling = true,
						 .no_store = true,
						 .weight_root = r->u->opt.format.weight_roots,
						 .n_weight_root =
							 r->u->opt.format.n_weight_roots,
						 .log = r->u->log.sink,
						 .log_ctx = r->u->log.ctx,
						 .log_level = (enum unshard_log_level)r->u->log.max_level };
	struct problems problems = { .arena = &r->arena, .watch = watch };
	struct unshard_error why = { 0 };
	unshard *u = NULL;
	int code = unshard_open(t->parent, &options, &u, &why);

	if (code < 0)
		return uns_fail(err, code, "%s", why.text);
	code = check(u, uns_path_name(t->partial), deep, &problems, err);
	unshard_close(u);
	if (code == 0 && problems.nobodys)
		return uns_fail(err, -EBADMSG, "the copy was not sound either and was removed: %s",
				problems.nobodys);
	return code;
}

static int sync_parent(const struct target *t, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = open(t->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return uns_fail(err, -errno, "%s: %s", t->parent, strerror(errno));
	return 0;
}

static int write_copy(struct repair *r, const struct target *t, bool deep,
		      struct repair_watch *watch, struct uns_err *err)
{
	UNS_TRY(repair_copy(r, t->partial, watch, err));
	UNS_TRY(check_copy(r, t, deep, watch, err));
	if (chmod(t->partial, 0755) < 0 || rename(t->partial, t->out) < 0)
		return uns_fail(err, -errno, "%s: %s", t->out, strerror(errno));
	return sync_parent(t, err);
}

static int make(struct repair *r, const char *out, bool deep, struct repair_watch *watch,
		struct uns_err *err)
{
	struct target t;
	int code;

	UNS_TRY(find_target(r, out, &t, err));
	UNS_TRY(plan(r, deep, watch, err));
	if (!mkdtemp(t.partial))
		return uns_fail(err, -errno, "%s: %s", t.partial, strerror(errno));
	code = write_copy(r, &t, deep, watch, err);
	if (code < 0)
		repair_remove(t.partial);
	return code;
}

static int hand_over(const struct repair *r, const struct caller *caller)
{
	size_t i;
	int code = 0;

	for (i = 0; code == 0 && caller->calls.change && i < r->n_changes; i++)
		code = caller->calls.change(caller->calls.ctx, &r->change[i]);
	return code;
}

int unshard_repair(unshard *u, const char *path, const char *out, unsigned flags,
		   const struct unshard_calls *calls, struct unshard_error *error)
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
	code = make(&r, out, flags & UNSHARD_DEEP, &watch, &err);
	if (code == 0)
		code = hand_over(&r, &caller);
	return give_error(error, &err, caller_fini(&caller, code));
}
