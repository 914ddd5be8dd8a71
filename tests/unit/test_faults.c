/* Every call that can fail, failing once: each format's checkpoints are shown, read, described and checked
 * while the n-th open, read, stat, allocation .. fails. What is asked for meanwhile is an error or
 * the right answer; once the fault is gone the same session gives the right answers to everything, and so
 * does a later one with the same store. Under the sanitizers no error path leaks or touches what is gone.
 *
 *   test_faults GROUP [SUBJECT]   GROUP: files, memory, store; SUBJECT: a name in golden_sources.h
 *
 * A call fails once for each place that makes it: its caller, that one's caller, and so on for a few functions of the
 * program. The question during which one failed is asked again, so that the next place fails, until none is new. So
 * every place fails in the first session that comes by, whatever the build: several in one session, one at a time. If
 * an answer is wrong then, each of these fails alone in a session of its own, and what is wrong there is told. If
 * nothing is, the answer is told with all that had failed.
 *
 * UNSHARD_LONG=1 tells places apart by all functions, in libraries too; UNSHARD_LONG=all lets every call fail in
 * a session of its own (that takes hours). */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
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
	MAX_SUSPICIONS = 50,
	MAX_TRIED = 1 << 17,    /* faults at places; a power of two */
	MAX_STRUCK = 32,          /* of these in one session */
	SAME_FRAMES = 10,       /* of a stack: wrong answers from there are told once */
	CASE_SECONDS = 120,     /* one that takes longer hangs */
	OLD_ENOUGH_US = 200000, /* for what is known of a file to be kept in the store */
	KEPT_S = 2,               /* a session goes on with what it saw of a directory for less */
	STORE_S = 12,             /* and without a store that failed twice */
};

/* Functions of the program that tell places apart. Under a sanitizer all takes three times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { PROGRAM_FRAMES = 2 };
#else
enum { PROGRAM_FRAMES = 4 };
#endif

static bool each; /* call fails in a session of its own */
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
	alarm(CASE_SECONDS);
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
static unsigned n_cases, n_bad;
static bool telling; /* else a wrong answer is but a suspicion: several calls failed */

/* A wrong answer after several calls failed, the first one of a session. */
struct suspicion {
	bool is;
	unsigned n; /* calls that had failed */
	void *stack[MAX_STRUCK][FAULTS_DEEP];
	int depth[MAX_STRUCK];
	char what[MAX_STRUCK][100], example[2000];
};

static struct suspicion suspicions[MAX_SUSPICIONS + 1]; /* those that no fault alone explains; then the one at hand */
static size_t n_suspicions;

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

static unsigned n_struck;
static char struck_what[MAX_STRUCK][100];

static void tell_answers(char *out, size_t size, enum phase phase, const struct step *step, const struct answer *got,
			 const struct answer *right)
{
	char is[600], was[600];

	excerpt(got, right, is, sizeof(is));
	excerpt(right, got, was, sizeof(was));
	snprintf(out, size, "%s: %s; %s %s\n    got   %s\n    right %s", phase_text[phase], doing,
		 kind_name[step->kind], step->path, is, was);
}

static void suspect(const struct step *step, enum phase phase, const struct answer *got, const struct answer *right)
{
	struct suspicion *s = &suspicions[n_suspicions];
	unsigned i;

	if (s->is)
		return;
	s->is = true;
	s->n = n_struck;
	for (i = 0; i < n_struck; i++) {
		memcpy(s->what[i], struck_what[i], sizeof(s->what[i]));
		s->depth[i] = faults_where(i + 1, s->stack[i]);
	}
	tell_answers(s->example, sizeof(s->example), phase, step, got, right);
}

static void found(const struct step *step, enum phase phase, const struct answer *got, const struct answer *right)
{
	void *stack[FAULTS_DEEP];
	int depth = faults_where(faults_plan->struck, stack), common = depth < SAME_FRAMES ? depth : SAME_FRAMES;
	struct group *g = groups;

	if (!telling) {
		suspect(step, phase, got, right);
		return;
	}
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
	if (!g->n[phase]++)
		tell_answers(g->example[phase], sizeof(g->example[phase]), phase, step, got, right);
}

static void tell_stack(void *const stack[FAULTS_DEEP], int depth)
{
	char line[1200];
	size_t n = 0;
	Dl_info info;
	int i;

	n += (size_t)snprintf(line, sizeof(line), "addr2line -spfe /proc/%d/exe", getpid());
	for (i = 1; i < depth; i++)
		if (dladdr(stack[i], &info) && dladdr((void *)(uintptr_t)tell_stack, &info))
			n += (size_t)snprintf(line + n, sizeof(line) - n, " %#lx",
					      (unsigned long)((char *)stack[i] - 1 - (char *)info.dli_fbase));
	snprintf(line + n, sizeof(line) - n, " | grep -v '?' | head -n 9 | sed 's/^/      /' >&2");
	fflush(stderr);
	if (system(line) != 0)
		fprintf(stderr, "      (addr2line did not run)\n");
}

static void tell_suspicion(const struct suspicion *s)
{
	unsigned i;

	fprintf(stderr, "-- wrong after these failed, and after none of them alone:\n");
	for (i = 0; i < s->n; i++) {
		fprintf(stderr, "   %s\n", s->what[i]);
		tell_stack(s->stack[i], s->depth[i]);
	}
	fprintf(stderr, "  wrong %s\n", s->example);
}

static int tell(void)
{
	size_t i;
	int phase;

	for (i = 0; i < n_groups; i++) {
		fprintf(stderr, "-- wrong after this failed:\n");
		tell_stack(groups[i].stack, groups[i].depth);
		for (phase = 0; phase <= LATER; phase++)
			if (groups[i].n[phase])
				fprintf(stderr, "  %u times wrong %s\n", groups[i].n[phase], groups[i].example[phase]);
	}
	for (i = 0; i < n_suspicions; i++)
		tell_suspicion(&suspicions[i]);
	printf("%u calls failed, %u wrong answers in %zu places\n", n_cases, n_bad, n_groups + n_suspicions);
	return n_bad ? 1 : 0;
}

/* -- what fails -- */

static const struct fault {
	const char *group;
	enum faults_call call;
	enum faults_action action;
	int error;
	bool remembered; /* an earlier session has put into the store what it found */
} faults[] = {
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EIO, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EMFILE, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EACCES, false },
	{ "files", FAULTS_OPEN, FAULTS_FAIL, EINTR, false },
	{ "files", FAULTS_READ, FAULTS_FAIL, EIO, false },
	{ "files", FAULTS_READ, FAULTS_FAIL, EINTR, false },
	{ "files", FAULTS_READ, FAULTS_SHORT, EIO, false },
	{ "files", FAULTS_STAT, FAULTS_FAIL, EIO, false },
	{ "files", FAULTS_STAT, FAULTS_FAIL, EACCES, false },
	{ "files", FAULTS_READDIR, FAULTS_FAIL, EIO, false },
	{ "files", FAULTS_READLINK, FAULTS_FAIL, EIO, false },
	{ "files", FAULTS_MMAP, FAULTS_FAIL, ENOMEM, false },
	{ "files", FAULTS_THREAD, FAULTS_FAIL, EAGAIN, false },
	{ "memory", FAULTS_MALLOC, FAULTS_FAIL, ENOMEM, false },
	{ "store", FAULTS_WRITE, FAULTS_FAIL, ENOSPC, false },
	{ "store", FAULTS_WRITE, FAULTS_FAIL, EIO, false },
	{ "store", FAULTS_WRITE, FAULTS_SHORT, EIO, false },
	{ "store", FAULTS_FSYNC, FAULTS_FAIL, EIO, false },
	{ "store", FAULTS_RENAME, FAULTS_FAIL, EACCES, false },
	{ "store", FAULTS_LOCK, FAULTS_FAIL, EIO, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_BUSY, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_IOERR, false },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_NOMEM, false },
	{ "store", FAULTS_OPEN, FAULTS_FAIL, EIO, true },
	{ "store", FAULTS_STAT, FAULTS_FAIL, EIO, true },
	{ "store", FAULTS_READ, FAULTS_FAIL, EIO, true },
	{ "store", FAULTS_SQLITE, FAULTS_FAIL, SQLITE_IOERR, true },
	{ "memory", FAULTS_MALLOC, FAULTS_FAIL, ENOMEM, true },
};

enum { N_FAULTS = sizeof(faults) / sizeof(*faults) };

static const char *group;           /* of these */
static bool remembered;             /* of these, those */
static const struct golden_source *subject;
static uint64_t tried[MAX_TRIED];   /* a hash by itself; 0 = free */
static size_t one;                  /* of these, where each call fails */
static uint64_t nth;                /* the call of it */
static uint64_t only; /* of all faults at all places, this one, once in a session; 0 = those that are new */
static uint64_t struck[MAX_STRUCK]; /* in this session */
static bool has_struck[N_FAULTS]; /* in this session */

/* Puts it in; false = it is there. */
static bool is_new(uint64_t key)
{
	size_t i = key % MAX_TRIED;

	for (; tried[i]; i = (i + 1) % MAX_TRIED)
		if (tried[i] == key)
			return false;
	tried[i] = key;
	return true;
}

static void strike(size_t i, uint64_t key)
{
	n_cases++;
	has_struck[i] = true;
	struck[n_struck] = key;
	snprintf(struck_what[n_struck], sizeof(*struck_what), "%s %s with %d (%s)", call_name[faults[i].call],
		 faults[i].action == FAULTS_SHORT ? "is short" : "fails", faults[i].error, strerror(faults[i].error));
	snprintf(doing, sizeof(doing), "%s: %s", subject->name, struck_what[n_struck++]);
}

static bool choose_locked(enum faults_call call, uint64_t where, uint32_t *action, int *error)
{
	uint64_t key;
	size_t i;

	for (i = 0; i < N_FAULTS; i++) {
		if (faults[i].call != call || faults[i].remembered != remembered || strcmp(faults[i].group, group) != 0)
			continue;
		key = (where ^ (i + 1)) * 0x9e3779b97f4a7c15u | 1;
		if (n_struck == MAX_STRUCK)
			return false;
		if (each ? i != one || faults_plan->seen != nth : only ? key != only || n_struck : !is_new(key))
			continue;
		strike(i, key);
		*action = faults[i].action;
		*error = faults[i].error;
		return true;
	}
	return false;
}

static bool choose(enum faults_call call, uint64_t where, uint32_t *action, int *error)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool chosen;

	pthread_mutex_lock(&lock);
	chosen = choose_locked(call, where, action, error);
	pthread_mutex_unlock(&lock);
	return chosen;
}

static bool has_failed_with(int error)
{
	size_t i;

	for (i = 0; i < N_FAULTS; i++)
		if (has_struck[i] && faults[i].error == error)
			return true;
	return false;
}

/* -- one session -- */

/* A report about everything may pass over what it could not look at, if it says so. */
static bool says_so(const struct step *s, const struct answer *a)
{
	bool reports = s->kind == SCAN || s->kind == CHECK || s->kind == DEEP;
	size_t i;

	for (i = 0; reports && a->code == 0 && a->text.p && i < N_FAULTS; i++)
		if (has_struck[i] &&
		    strstr(a->text.p, faults[i].error == ENOMEM ? "out of memory" : strerror(faults[i].error)))
			return true;
	return false;
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
	/* And a directory of which it cannot be said whether the view shows it is listed, and cannot be opened. */
	if (phase == MEANWHILE && s->kind == LIST && has_failed_with(EACCES) &&
	    (leaves_out(a, right) || leaves_out(right, a)))
		return true;
	/* A lock of others was waited for: it is asked for again after a pause. */
	if (phase == AFTERWARDS && has_failed_with(SQLITE_BUSY) && a->code == -EBUSY)
		return true;
	return phase == MEANWHILE && n_struck && (a->code < 0 || says_so(s, a));
}

static void let_time_pass(void)
{
	faults_plan->later_s += n_struck > 1 ? STORE_S : KEPT_S;
}

/* Again, for as long as something fails meanwhile. */
static void ask_and_fail(unshard *u, struct tour *t, size_t i, enum phase phase, struct answer *a)
{
	uint64_t before;

	do {
		if (phase == AFTERWARDS)
			let_time_pass();
		answer_fini(a);
		before = faults_plan->struck;
		ask(u, &t->step[i], a);
		if (faults_plan->struck != before && !may_be(a, &t->step[i], &t->right[i], MEANWHILE))
			found(&t->step[i], MEANWHILE, a, &t->right[i]);
	} while (faults_plan->struck != before);
	if (!may_be(a, &t->step[i], &t->right[i], phase))
		found(&t->step[i], phase, a, &t->right[i]);
}

static void take_tour(struct tour *t, unshard *u, enum phase phase)
{
	struct answer a = { 0 };
	size_t i;

	for (i = 0; i < t->n; i++) {
		if (phase == MEANWHILE)
			ask_and_fail(u, t, i, MEANWHILE, &a);
		else
			ask(u, &t->step[i], &a);
		if (phase == MEANWHILE && !same(&a, &t->right[i]))
			ask_and_fail(u, t, i, AFTERWARDS, &a);
		else if (phase != MEANWHILE && !may_be(&a, &t->step[i], &t->right[i], phase))
			found(&t->step[i], phase, &a, &t->right[i]);
		answer_fini(&a);
	}
}

static void prepare_store(const struct golden_source *s, struct tour *t)
{
	unshard *u;

	fresh_store(s);
	if (!remembered)
		return;
	if (open_session(s, &u, NULL) < 0)
		exit(1);
	take_tour(t, u, LATER);
	unshard_close(u);
}

static void opening_failed(const struct unshard_error *err)
{
	fprintf(stderr, "%s: %s\n", doing, err->text);
	exit(1);
}

/* Opened and asked everything; true = something failed. */
static bool try_session(const struct golden_source *s, struct tour *t)
{
	struct unshard_error err = { 0 };
	unshard *u;
	int code;

	alarm(CASE_SECONDS);
	n_struck = 0;
	memset(has_struck, 0, sizeof(has_struck));
	faults_arm();
	code = open_session(s, &u, &err);
	if (code < 0 && !faults_plan->struck)
		opening_failed(&err);
	if (code == 0)
		take_tour(t, u, MEANWHILE);
	faults_disarm();
	if (code == 0 && n_struck) {
		let_time_pass();
		take_tour(t, u, AFTERWARDS);
	}
	if (code == 0)
		unshard_close(u);
	return n_struck;
}

static void later_session(const struct golden_source *s, struct tour *t)
{
	struct unshard_error err = { 0 };
	unshard *u;

	alarm(CASE_SECONDS);
	if (open_session(s, &u, &err) < 0)
		opening_failed(&err);
	take_tour(t, u, LATER);
	unshard_close(u);
}

/* Each of what failed in the last session again, alone: is an answer wrong after it? */
static void tell_apart(const struct golden_source *s, struct tour *t)
{
	uint64_t all[MAX_STRUCK];
	unsigned n = n_struck, cases = n_cases, bad = n_bad, i;

	memcpy(all, struck, sizeof(all));
	telling = true;
	for (i = 0; i < n; i++) {
		only = all[i];
		prepare_store(s, t);
		try_session(s, t);
		later_session(s, t);
	}
	telling = false;
	only = 0;
	n_cases = cases;
	if (n_bad == bad) {
		n_bad++;
		n_suspicions += n_suspicions < MAX_SUSPICIONS;
	}
}

/* Until a session meets no place that is new. */
static void try_places(const struct golden_source *s, struct tour *t)
{
	bool more;

	do {
		prepare_store(s, t);
		suspicions[n_suspicions].is = false;
		more = try_session(s, t);
		if (more)
			later_session(s, t);
		if (suspicions[n_suspicions].is)
			tell_apart(s, t);
	} while (more);
}

static void try_each(const struct golden_source *s, struct tour *t)
{
	uint64_t n;

	for (nth = 0, n = 0; nth <= n; nth++) {
		prepare_store(s, t);
		try_session(s, t);
		n = nth ? n : faults_plan->seen; /* when none failed */
		later_session(s, t);
	}
}

static void run_subject(const struct golden_source *s)
{
	static struct tour t;
	uint32_t calls[2] = { 0, 0 };
	size_t i;

	subject = s;
	snprintf(doing, sizeof(doing), "%s: nothing fails", s->name);
	tour_plan(&t, s);
	for (i = 0; i < N_FAULTS; i++) {
		if (strcmp(faults[i].group, group) != 0)
			continue;
		calls[faults[i].remembered] |= 1u << faults[i].call;
		one = i;
		remembered = faults[i].remembered;
		faults_plan->calls = 1u << faults[i].call;
		if (each)
			try_each(s, &t);
	}
	for (i = 0; i < 2 && !each; i++) {
		remembered = i;
		faults_plan->calls = calls[i];
		if (calls[i])
			try_places(s, &t);
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
	group = argv[1];
	telling = each = getenv("UNSHARD_LONG") && strcmp(getenv("UNSHARD_LONG"), "all") == 0;
	faults_frames = each ? 1 : getenv("UNSHARD_LONG") ? 0 : PROGRAM_FRAMES;
	faults_choose = choose;
	signal(SIGALRM, hangs);
	if (!mkdtemp(work))
		return 1;
	make_subjects();
	for (i = 0; i < sizeof(golden_sources) / sizeof(*golden_sources); i++)
		if (argc == 2 || strcmp(argv[2], golden_sources[i].name) == 0)
			run_subject(&golden_sources[i]);
	result = tell();
	snprintf(line, sizeof(line), "rm -rf %s", work);
	shell(line);
	return result;
}
