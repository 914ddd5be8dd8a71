/* Every call that can fail, failing once: each format's checkpoints are shown, read, described and checked
 * while the n-th open, read, stat, allocation .. fails. What is asked for meanwhile is an error or
 * the right answer; once the fault is gone the same session gives the right answers to everything, and so
 * does a later one with the same store. Under the sanitizers no error path leaks or touches what is gone.
 *
 *   test_faults GROUP [SUBJECT]   GROUP: files, memory, store; SUBJECT: a name in golden_sources.h
 *
 * Where there are many calls of a kind, some of them are chosen, others under the sanitizers than without, and of
 * these every sixth fails: each fault at a sixth of the checkpoints. UNSHARD_LONG=1 lets a hundred to two hundred times
 * as many fail, UNSHARD_LONG=all all of them (that takes hours). Wrong answers are told by where the call failed. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sqlite3.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "faults/faults.h"
#include "golden_sources.h"
#include "unshard.h"

enum {
	MAX_STEPS = 1500,
	MAX_GROUPS = 200,
	SAME_FRAMES = 10,       /* of a stack: wrong answers from there are told once */
	CASE_SECONDS = 120,     /* one that takes longer hangs */
	OLD_ENOUGH_US = 200000, /* for what is known of a file to be kept in the store */
	KEPT_US = 1200000,      /* a session goes on with what it saw of a directory for less */
};

static unsigned halves = 1; /* of `most` in the table below are made to fail, rounded up; 0 = all calls are */
static unsigned every = 6;  /* of those that were chosen, one after the other, one in so many fails */
static unsigned n_chosen;
static char work[] = "/dev/shm/unshard-faults-XXXXXX";
static char doing[400]; /* what is under way, for who reads of a crash */

/* -- what is made, and how it is opened -- */

static void shell(const char *line)
{
	if (system(line) != 0) {
		fprintf(stderr, "%s: failed\n", line);
		exit(1);
	}
}

static const char *source_of(const struct golden_source *s)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%d/source", work, (int)(s - golden_sources));
	return path;
}

static const char *store_of(const struct golden_source *s)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%d/store.db", work, (int)(s - golden_sources));
	return path;
}

static int open_session(const struct golden_source *s, unshard **out, struct unshard_error *err)
{
	char model[PATH_MAX];
	const char *models[1] = { model };
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .store = store_of(s) };

	snprintf(model, sizeof(model), "%s/%s", source_of(s), s->model ? s->model : "");
	options.model = models;
	options.n_model = s->model != NULL;
	return unshard_open(source_of(s), &options, out, err);
}

static void fresh_store(const struct golden_source *s)
{
	struct unshard_error err = { 0 };
	char path[PATH_MAX + 8];
	unshard *u;

	snprintf(path, sizeof(path), "%s", store_of(s));
	unlink(path);
	snprintf(path, sizeof(path), "%s-wal", store_of(s));
	unlink(path);
	snprintf(path, sizeof(path), "%s-shm", store_of(s));
	unlink(path);
	if (!s->has_facts)
		return;
	if (open_session(s, &u, &err) < 0 || unshard_meta_set(u, "", "train_batch_size", "77", NULL, &err) < 0 ||
	    unshard_meta_set(u, "checkpoint-2", "save_steps", "13", NULL, &err) < 0) {
		fprintf(stderr, "%s: %s\n", s->name, err.text);
		exit(1);
	}
	unshard_close(u);
}

/* -- a tour: everything that a session can be asked -- */

enum kind { LIST, STAT, READ, READLINK, SCAN, INFO, TENSORS, PROVENANCE, PROBLEMS, CHECK, DEEP, META };

static const char *const kind_name[] = { "list",    "stat",       "read",     "readlink", "scan", "info",
					 "tensors", "provenance", "problems", "check",    "deep", "meta" };

struct step {
	enum kind kind;
	char *path;
};

struct answer {
	int code;
	struct uns_text text;
	struct unshard_error err;
};

struct tour {
	struct step step[MAX_STEPS];
	struct answer right[MAX_STEPS];
	size_t n;
};

static void answer_fini(struct answer *a)
{
	uns_text_fini(&a->text);
	*a = (struct answer){ 0 };
}

static void tour_fini(struct tour *t)
{
	while (t->n--) {
		free(t->step[t->n].path);
		answer_fini(&t->right[t->n]);
	}
	t->n = 0;
}

/* What the test does for itself meanwhile does not fail. */
static bool pause_faults(void)
{
	bool armed = faults_plan->armed;

	faults_disarm();
	return armed;
}

static void resume_faults(bool armed)
{
	faults_plan->armed = armed;
}

__attribute__((format(printf, 2, 3))) static void put(struct uns_text *out, const char *fmt, ...)
{
	bool armed = pause_faults();
	char *line;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&line, fmt, ap);
	va_end(ap);
	uns_text_add(out, line, (size_t)n);
	free(line);
	resume_faults(armed);
}

static void add_stat(struct uns_text *out, const char *name, const struct unshard_stat *st)
{
	put(out, "%s %d %o %llu %lld %d\n", name, st->kind, st->mode, st->live ? 0 : (unsigned long long)st->size_bytes,
	    (long long)st->mtime_ns, st->stable);
}

static int list(unshard *u, const char *path, struct answer *a)
{
	unshard_listing *l;
	int code = unshard_list(u, path, &l, &a->err);
	size_t i;

	if (code < 0)
		return code;
	for (i = 0; i < unshard_listing_count(l); i++)
		add_stat(&a->text, unshard_listing_at(l, i)->name, &unshard_listing_at(l, i)->stat);
	unshard_listing_free(l);
	return 0;
}

static int read_file(unshard *u, const char *path, struct answer *a)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	bool armed;
	char *bytes;
	ssize_t n;
	int code = unshard_file_open(u, path, NULL, &file, &st, &a->err);

	if (code < 0)
		return code;
	armed = pause_faults();
	bytes = calloc(1, st.size_bytes + 1);
	resume_faults(armed);
	n = unshard_pread(file, bytes, st.size_bytes, 0, &a->err);
	unshard_file_close(file);
	armed = pause_faults();
	if (n >= 0)
		uns_text_add(&a->text, bytes, (size_t)n);
	free(bytes);
	resume_faults(armed);
	return n < 0 ? (int)n : 0;
}

static int hear_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	put(ctx, "%s %s %lld %lld %llu %s %s\n", c->path, c->format, (long long)c->step, (long long)c->world_size,
	    (unsigned long long)c->size_bytes, unshard_state_name(c->state), c->problem ? c->problem : "");
	return 0;
}

static int hear_finding(void *ctx, const struct unshard_finding *f)
{
	put(ctx, "%s %s %d %s\n", f->path, f->check, f->severity, f->text);
	return 0;
}

static int hear_fact(void *ctx, const struct unshard_fact *f)
{
	put(ctx, "%s %s=%s\n", f->subject, f->key, f->json);
	return 0;
}

static int hear_problem(void *ctx, const struct unshard_finding *f)
{
	put(ctx, "%s\n", f->text);
	return 0;
}

static int ask_problems(unshard *u, const struct step *s, struct answer *a)
{
	size_t n_serious = 0;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &a->text, .finding = hear_problem };
	int code = unshard_problems(u, s->path, &calls, &n_serious, &a->err);

	if (code == 0)
		put(&a->text, "%zu\n", n_serious);
	return code;
}

static int ask_text(unshard *u, const struct step *s, struct answer *a)
{
	const enum unshard_what what = s->kind == INFO      ? UNSHARD_INFO
				       : s->kind == TENSORS ? UNSHARD_TENSORS
							    : UNSHARD_PROVENANCE;
	char *text = NULL;
	int code;

	if (s->kind == PROBLEMS)
		return ask_problems(u, s, a);
	if (s->kind == READLINK)
		code = unshard_readlink(u, s->path, &text, &a->err);
	else
		code = unshard_describe(u, s->path, what, "/mnt", &text, &a->err);
	if (code == 0)
		put(&a->text, "%s", text);
	unshard_free(text);
	return code;
}

static int ask_code(unshard *u, const struct step *s, struct answer *a)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &a->text, .checkpoint = hear_checkpoint,
					     .finding = hear_finding, .fact = hear_fact };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code;

	switch (s->kind) {
	case LIST:
		return list(u, s->path, a);
	case STAT:
		code = unshard_stat(u, s->path, &st, &a->err);
		if (code == 0)
			add_stat(&a->text, "", &st);
		return code;
	case READ:
		return read_file(u, s->path, a);
	case SCAN:
		return unshard_scan(u, &calls, &a->err);
	case CHECK:
		return unshard_check(u, s->path, 0, &calls, NULL, &a->err);
	case DEEP:
		return unshard_check(u, s->path, UNSHARD_DEEP, &calls, NULL, &a->err);
	case META:
		return unshard_meta_list(u, s->path, &calls, &a->err);
	default:
		return ask_text(u, s, a);
	}
}

static void ask(unshard *u, const struct step *s, struct answer *a)
{
	*a = (struct answer){ 0 };
	a->code = ask_code(u, s, a);
}

static bool same(const struct answer *a, const struct answer *b)
{
	return a->code == b->code &&
	       (a->code < 0 ||
		(a->text.len == b->text.len && (!a->text.len || memcmp(a->text.p, b->text.p, a->text.len) == 0)));
}

static void plan_step(struct tour *t, enum kind kind, const char *path)
{
	if (t->n == MAX_STEPS) {
		fprintf(stderr, "more than %d steps\n", MAX_STEPS);
		exit(1);
	}
	t->step[t->n++] = (struct step){ kind, strdup(path) };
}

static void plan_dir(struct tour *t, unshard *u, const char *dir)
{
	static const char *const info[] = { "info.json", "tensors.json", "provenance.json", "problems.txt", NULL };
	unshard_listing *l;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char path[PATH_MAX];
	size_t i;

	plan_step(t, LIST, dir);
	if (unshard_list(u, dir, &l, NULL) < 0)
		return;
	for (i = 0; i < unshard_listing_count(l); i++) {
		snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", unshard_listing_at(l, i)->name);
		if (unshard_listing_at(l, i)->stat.kind == UNSHARD_DIR) {
			plan_step(t, STAT, path);
			plan_dir(t, u, path);
		} else
			plan_step(t, unshard_listing_at(l, i)->stat.kind == UNSHARD_LINK ? READLINK : READ, path);
	}
	unshard_listing_free(l);
	for (i = 0; info[i]; i++) {
		snprintf(path, sizeof(path), "%s/.unshard/%s", dir, info[i]);
		if (*dir && unshard_stat(u, path, &st, NULL) == 0)
			plan_step(t, READ, path);
	}
}

static int plan_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	plan_step(ctx, INFO, c->path);
	plan_step(ctx, TENSORS, c->path);
	plan_step(ctx, PROVENANCE, c->path);
	plan_step(ctx, PROBLEMS, c->path);
	plan_step(ctx, META, c->path);
	return 0;
}

/* Of those that differ in a number alone, one. */
static const char *const views[] = { "dcp", "full", "full-fsdp", "universal", "weights", "weights-bf16", "world-1" };

static void tour_plan(struct tour *t, const struct golden_source *s)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = t, .checkpoint = plan_checkpoint };
	struct unshard_error err = { 0 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard *u;
	size_t i;

	fresh_store(s);
	if (open_session(s, &u, &err) < 0) {
		fprintf(stderr, "%s: %s\n", s->name, err.text);
		exit(1);
	}
	plan_step(t, LIST, "");
	for (i = 0; i < sizeof(views) / sizeof(*views); i++)
		if (unshard_stat(u, views[i], &st, NULL) == 0)
			plan_dir(t, u, views[i]);
	plan_step(t, SCAN, "");
	unshard_scan(u, &calls, NULL);
	plan_step(t, CHECK, "");
	plan_step(t, DEEP, "");
	for (i = 0; i < t->n; i++)
		ask(u, &t->step[i], &t->right[i]);
	unshard_close(u);
}

/* -- what was found, told once for each place that failed -- */

enum phase { MEANWHILE, AFTERWARDS, LATER };

static const char *const phase_text[] = { "while it failed", "afterwards, in the same session",
					  "in a later session with the same store" };

struct group {
	void *stack[FAULTS_DEEP];
	int depth;
	unsigned n[LATER + 1];
	char example[LATER + 1][2000];
};

static struct group groups[MAX_GROUPS];
static size_t n_groups;
static unsigned n_cases, n_struck, n_bad;

static const char *const call_name[FAULTS_CALLS] = {
	"open",  "stat",   "read", "readdir", "readlink", "mmap",   "write",
	"fsync", "rename", "lock", "malloc",  "sqlite",   "thread",
};

/* What differs, from a few bytes before it. */
static void excerpt(const struct answer *a, const struct answer *other, char *out, size_t size)
{
	size_t at = 0, i;

	if (a->code < 0) {
		snprintf(out, size, "%s (%s)", strerror(-a->code), a->err.text);
		return;
	}
	while (other->code == 0 && at < a->text.len && at < other->text.len && a->text.p[at] == other->text.p[at])
		at++;
	at = at > 60 ? at - 60 : 0;
	for (i = 0; at + i < a->text.len && i + 1 < size; i++)
		out[i] = a->text.p[at + i] < ' ' ? '|' : a->text.p[at + i];
	out[i] = '\0';
}

static void found(const struct step *step, enum phase phase, const struct answer *got, const struct answer *right)
{
	void *stack[FAULTS_DEEP];
	int depth = faults_where(stack), common = depth < SAME_FRAMES ? depth : SAME_FRAMES;
	char is[600], was[600];
	struct group *g = groups;

	n_bad++;
	while (g < groups + n_groups &&
	       (g->depth < common || memcmp(g->stack, stack, (size_t)common * sizeof(*stack)) != 0))
		g++;
	if (g == groups + MAX_GROUPS)
		return;
	if (g == groups + n_groups) {
		n_groups++;
		g->depth = depth;
		memcpy(g->stack, stack, sizeof(stack));
	}
	if (g->n[phase]++)
		return;
	excerpt(got, right, is, sizeof(is));
	excerpt(right, got, was, sizeof(was));
	snprintf(g->example[phase], sizeof(g->example[phase]), "%s: %s; %s %s\n    got   %s\n    right %s",
		 phase_text[phase], doing, kind_name[step->kind], step->path, is, was);
}

static void tell_stack(const struct group *g)
{
	char line[1200];
	size_t n = 0;
	Dl_info info;
	int i;

	n += (size_t)snprintf(line, sizeof(line), "addr2line -spfe /proc/%d/exe", getpid());
	for (i = 1; i < g->depth; i++)
		if (dladdr(g->stack[i], &info) && dladdr((void *)(uintptr_t)tell_stack, &info))
			n += (size_t)snprintf(line + n, sizeof(line) - n, " %#lx",
					      (unsigned long)((char *)g->stack[i] - 1 - (char *)info.dli_fbase));
	snprintf(line + n, sizeof(line) - n, " | grep -v '?' | head -n 9 | sed 's/^/      /' >&2");
	fflush(stderr);
	if (system(line) != 0)
		fprintf(stderr, "      (addr2line did not run)\n");
}

static int tell(void)
{
	size_t i;
	int phase;

	for (i = 0; i < n_groups; i++) {
		fprintf(stderr, "-- wrong after this failed:\n");
		tell_stack(&groups[i]);
		for (phase = 0; phase <= LATER; phase++)
			if (groups[i].n[phase])
				fprintf(stderr, "  %u times wrong %s\n", groups[i].n[phase], groups[i].example[phase]);
	}
	printf("%u cases, %u struck, %u wrong answers in %zu places\n", n_cases, n_struck, n_bad, n_groups);
	return n_bad ? 1 : 0;
}

/* -- one case -- */

/* A report about everything may pass over what it could not look at, if it says so. */
static bool says_so(const struct step *s, const struct answer *a, int error)
{
	bool reports = s->kind == SCAN || s->kind == CHECK || s->kind == DEEP;

	return reports && a->code == 0 && a->text.p &&
	       strstr(a->text.p, error == ENOMEM ? "out of memory" : strerror(error));
}

/* A name of SOURCE that is kept to others is not listed: of the lines of `right` some are left out. */
static bool leaves_out(const struct answer *a, const struct answer *right)
{
	const char *line = a->text.p, *end, *at = right->text.p;
	size_t n;

	if (a->code < 0 || right->code < 0 || !at)
		return false;
	for (; line && *line; line = end + 1) {
		end = strchr(line, '\n');
		n = (size_t)(end - line) + 1;
		while (*at && strncmp(at, line, n) != 0)
			at = strchr(at, '\n') + 1;
		if (!*at)
			return false;
		at += n;
	}
	return true;
}

static bool may_be(const struct answer *a, const struct step *s, const struct answer *right, enum phase phase)
{
	if (same(a, right))
		return true;
	if (phase == MEANWHILE && s->kind == LIST && faults_plan->error == EACCES && leaves_out(a, right))
		return true;
	/* A lock of others was waited for: it is asked for again after a pause. */
	if (phase == AFTERWARDS && faults_plan->error == SQLITE_BUSY && a->code == -EBUSY)
		return true;
	return phase == MEANWHILE && faults_plan->struck && (a->code < 0 || says_so(s, a, faults_plan->error));
}

/* What is seen of a directory may be as old as a session keeps it; once. */
static void take_tour(struct tour *t, unshard *u, enum phase phase)
{
	bool waited = phase != AFTERWARDS;
	struct answer a;
	size_t i;

	for (i = 0; i < t->n; i++) {
		ask(u, &t->step[i], &a);
		if (!waited && !may_be(&a, &t->step[i], &t->right[i], phase)) {
			usleep(KEPT_US);
			waited = true;
			answer_fini(&a);
			ask(u, &t->step[i], &a);
		}
		if (!may_be(&a, &t->step[i], &t->right[i], phase))
			found(&t->step[i], phase, &a, &t->right[i]);
		answer_fini(&a);
	}
}

static void prepare_store(const struct golden_source *s, struct tour *t, bool remembered)
{
	unshard *u;

	fresh_store(s);
	if (!remembered)
		return;
	faults_plan->struck = 0;
	if (open_session(s, &u, NULL) < 0)
		exit(1);
	take_tour(t, u, LATER);
	unshard_close(u);
}

static void run_case(const struct golden_source *s, struct tour *t, bool remembered)
{
	struct unshard_error err = { 0 };
	unshard *u;
	int code;

	snprintf(doing, sizeof(doing), "%s: %s number %llu of all %s with %d (%s)", s->name,
		 call_name[__builtin_ctz(faults_plan->calls)], (unsigned long long)faults_plan->nth,
		 faults_plan->action == FAULTS_SHORT ? "is short" : "fails", faults_plan->error,
		 strerror(faults_plan->error));
	alarm(CASE_SECONDS);
	prepare_store(s, t, remembered);
	n_cases++;
	faults_arm();
	code = open_session(s, &u, &err);
	if (code == 0)
		take_tour(t, u, MEANWHILE);
	faults_disarm();
	n_struck += faults_plan->struck > 0;
	if (code == 0) {
		take_tour(t, u, AFTERWARDS);
		unshard_close(u);
	}
	if (open_session(s, &u, &err) < 0) {
		fprintf(stderr, "%s: %s\n", doing, err.text);
		exit(1);
	}
	take_tour(t, u, LATER);
	unshard_close(u);
	alarm(0);
}

/* -- groups -- */

static const struct fault {
	const char *group;
	enum faults_call call;
	enum faults_action action;
	int error;
	unsigned most;   /* of each subject's */
	bool remembered; /* an earlier session has put into the store what it found */
} faults[] = {
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EIO, 3, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EMFILE, 1, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EACCES, 1, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EINTR, 1, false },
	{ "files", FAULTS_READ, FAULTS_FAIL, EIO, 3, false },
	{ "files", FAULTS_READ, FAULTS_FAIL, EINTR, 1, false },
	{ "files", FAULTS_READ, FAULTS_SHORT, EIO, 1, false },
	{ "files", FAULTS_STAT, FAULTS_FAIL, EIO, 3, false },
	{ "files", FAULTS_STAT, FAULTS_FAIL, EACCES, 1, false },
	{ "files", FAULTS_READDIR, FAULTS_FAIL, EIO, 1, false },
	{ "files", FAULTS_READLINK, FAULTS_FAIL, EIO, 1, false },
	{ "files", FAULTS_MMAP, FAULTS_FAIL, ENOMEM, 1, false },
	{ "files", FAULTS_THREAD, FAULTS_FAIL, EAGAIN, 1, false },
	{ "memory", FAULTS_MALLOC, FAULTS_FAIL, ENOMEM, 12, false },
	{ "store", FAULTS_WRITE, FAULTS_FAIL, ENOSPC, 1, false },
	{ "store", FAULTS_WRITE, FAULTS_FAIL, EIO, 1, false },
	{ "store", FAULTS_WRITE, FAULTS_SHORT, EIO, 1, false },
	{ "store", FAULTS_FSYNC, FAULTS_FAIL, EIO, 1, false },
	{ "store", FAULTS_RENAME, FAULTS_FAIL, EACCES, 1, false },
	{ "store", FAULTS_LOCK, FAULTS_FAIL, EIO, 1, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_BUSY, 6, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_IOERR, 2, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_NOMEM, 1, false },
	{ "store", FAULTS_OPEN, FAULTS_FAIL, EIO, 1, true },
	{ "store", FAULTS_STAT, FAULTS_FAIL, EIO, 1, true },
	{ "store", FAULTS_READ, FAULTS_FAIL, EIO, 1, true },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_IOERR, 1, true },
	{ "memory", FAULTS_MALLOC, FAULTS_FAIL, ENOMEM, 3, true },
};

/* Every one of them, or `most` spread over all. */
static void run_cases(const struct golden_source *s, struct tour *t, const struct fault *fault, uint64_t n)
{
	uint64_t i, low, high, most = ((uint64_t)halves * fault->most + 1) / 2;

	if (!halves || n < most)
		most = n;

	*faults_plan =
		(struct faults_plan){ .calls = 1u << fault->call, .action = fault->action, .error = fault->error };
	for (i = 0; i < most; i++) {
		low = 1 + i * n / most;
		high = 1 + (i + 1) * n / most;
		faults_plan->nth = low + (uint64_t)random() % (high - low);
		if (n_chosen++ % every == 0)
			run_case(s, t, fault->remembered);
	}
}

/* How many calls of each kind a tour makes when none fails. */
static void count_calls(const struct golden_source *s, struct tour *t, bool remembered, uint64_t count[FAULTS_CALLS])
{
	unshard *u;

	*faults_plan = (struct faults_plan){ 0 };
	snprintf(doing, sizeof(doing), "%s: nothing fails", s->name);
	prepare_store(s, t, remembered);
	faults_arm();
	if (open_session(s, &u, NULL) < 0)
		exit(1);
	take_tour(t, u, MEANWHILE);
	faults_disarm();
	unshard_close(u);
	memcpy(count, faults_plan->count, sizeof(faults_plan->count));
}

static void run_subject(const struct golden_source *s, const char *group)
{
	static struct tour t;
	uint64_t count[2][FAULTS_CALLS];
	bool counted[2] = { false, false };
	size_t i;

	tour_plan(&t, s);
	for (i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		const struct fault *f = &faults[i];

		if (strcmp(f->group, group) != 0)
			continue;
		if (!counted[f->remembered])
			count_calls(s, &t, f->remembered, count[f->remembered]);
		counted[f->remembered] = true;
		run_cases(s, &t, f, count[f->remembered][f->call]);
	}
	tour_fini(&t);
}

static void hangs(int signal)
{
	(void)signal;
	dprintf(2, "hangs: %s\n", doing);
	abort();
}

static void make_subjects(void)
{
	char line[2 * PATH_MAX];
	size_t i;

	setenv("G", UNSHARD_GOLDEN, 1);
	for (i = 0; i < sizeof(golden_sources) / sizeof(*golden_sources); i++) {
		snprintf(line, sizeof(line), "mkdir -p %s && cd %s && %s", source_of(&golden_sources[i]),
			 source_of(&golden_sources[i]), golden_sources[i].make);
		shell(line);
	}
	usleep(OLD_ENOUGH_US);
}

int main(int argc, char **argv)
{
	char line[64 + sizeof(work)];
	size_t i;
	int result;

	if (argc < 2)
		return fprintf(stderr, "usage: test_faults GROUP [SUBJECT]\n"), 2;
	if (getenv("UNSHARD_LONG")) {
		halves = strcmp(getenv("UNSHARD_LONG"), "all") == 0 ? 0 : 40;
		every = 1;
	}
#ifdef __SANITIZE_ADDRESS__
	srandom(2);
#endif
	signal(SIGALRM, hangs);
	if (!mkdtemp(work))
		return 1;
	make_subjects();
	for (i = 0; i < sizeof(golden_sources) / sizeof(*golden_sources); i++)
		if (argc == 2 || strcmp(argv[2], golden_sources[i].name) == 0)
			run_subject(&golden_sources[i], argv[1]);
	result = tell();
	snprintf(line, sizeof(line), "rm -rf %s", work);
	shell(line);
	return result;
}
