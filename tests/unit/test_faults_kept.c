/* What is written, while a call fails: facts that were acknowledged are kept, others are as they were or as
 * they were to be; a repaired copy is there whole or not at all; a config file is judged rightly or not
 * at all. Every call of each kind fails once in its turn. */
#include <dirent.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "unshard.h"

enum {
	CASE_SECONDS = 60, /* one that takes longer hangs */
};

/* Calls of a kind that fail, spread over all; UNSHARD_LONG=1: each one. */
#ifdef __SANITIZE_ADDRESS__
enum { MOST = 8 };
#else
enum { MOST = 20 };
#endif

static const struct fault {
	const char *name;
	enum faults_call call;
	int error;
	enum faults_action action;
} faults[] = {
	{ "open", FAULTS_OPEN, EIO, FAULTS_FAIL },
	{ "open", FAULTS_OPEN, EMFILE, FAULTS_FAIL },
	{ "stat", FAULTS_STAT, EIO, FAULTS_FAIL },
	{ "read", FAULTS_READ, EIO, FAULTS_FAIL },
	{ "short read", FAULTS_READ, EIO, FAULTS_SHORT },
	{ "readdir", FAULTS_READDIR, EIO, FAULTS_FAIL },
	{ "readlink", FAULTS_READLINK, EIO, FAULTS_FAIL },
	{ "mmap", FAULTS_MMAP, ENOMEM, FAULTS_FAIL },
	{ "write", FAULTS_WRITE, EIO, FAULTS_FAIL },
	{ "write", FAULTS_WRITE, ENOSPC, FAULTS_FAIL },
	{ "short write", FAULTS_WRITE, ENOTTY, FAULTS_SHORT },
	{ "fsync", FAULTS_FSYNC, EIO, FAULTS_FAIL },
	{ "rename", FAULTS_RENAME, EACCES, FAULTS_FAIL },
	{ "lock", FAULTS_LOCK, EIO, FAULTS_FAIL },
	{ "malloc", FAULTS_MALLOC, ENOMEM, FAULTS_FAIL },
	{ "sqlite", FAULTS_SQLITE, SQLITE_IOERR, FAULTS_FAIL },
	{ "sqlite", FAULTS_SQLITE, SQLITE_FULL, FAULTS_FAIL },
	{ "thread", FAULTS_THREAD, EAGAIN, FAULTS_FAIL },
};

struct fixture {
	char dir[64], source[96], store[96], out[96];
	char doing[200]; /* for who reads of a failure */
	struct unshard_error err;
};

static struct fixture *current;

static void hangs(int number)
{
	(void)number;
	dprintf(2, "hangs: %s\n", current->doing);
	abort();
}

static void shell(const struct fixture *f, const char *line)
{
	char text[1024];

	snprintf(text, sizeof(text), "cd %s && %s", f->dir, line);
	if (system(text) != 0)
		fail_msg("%s: %s", f->doing, text);
}

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/dev/shm/unshard-kept-XXXXXX" };
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.source, sizeof(f.source), "%s/source", f.dir);
	snprintf(f.store, sizeof(f.store), "%s/store.db", f.dir);
	snprintf(f.out, sizeof(f.out), "%s/out", f.dir);
	current = &f;
	signal(SIGALRM, hangs);
	srandom(1);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	shell(*state, "rm -rf ../$(basename $PWD)");
	return 0;
}

static unshard *open_session(struct fixture *f, const char *store)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .store = store,
						 .no_store = !store };
	unshard *u = NULL;

	f->err.code = 0;
	unshard_open(f->source, &options, &u, &f->err);
	return u;
}

/* before(f); run(f) with the n-th call failing; after(f): for each n, of each kind. */
struct trial {
	void (*before)(struct fixture *f);
	void (*run)(struct fixture *f);
	void (*after)(struct fixture *f);
};

static void try(struct fixture *f, const struct trial *t, const struct fault *fault, uint64_t nth)
{
	snprintf(f->doing, sizeof(f->doing), "%s number %llu fails with %d (%s)", fault->name, (unsigned long long)nth,
		 fault->error, strerror(fault->error));
	alarm(CASE_SECONDS);
	t->before(f);
	*faults_plan = (struct faults_plan){
		.calls = 1u << fault->call, .action = fault->action, .error = fault->error, .nth = nth
	};
	faults_arm();
	t->run(f);
	faults_disarm();
	t->after(f);
	alarm(0);
}

static void try_all(struct fixture *f, const struct trial *t)
{
	const struct fault never = { .name = "nothing" };
	uint64_t count[FAULTS_CALLS], n, most, i;
	size_t k;

	try(f, t, &never, UINT64_MAX);
	memcpy(count, faults_plan->count, sizeof(count));
	for (k = 0; k < sizeof(faults) / sizeof(*faults); k++) {
		n = most = count[faults[k].call];
		if (n > MOST && !getenv("UNSHARD_LONG"))
			most = MOST;
		for (i = 0; i < most; i++)
			try(f, t, &faults[k],
			    1 + i * n / most + (uint64_t)random() % ((i + 1) * n / most - i * n / most));
	}
}

/* -- facts -- */

enum change { SEED_1, SEED_2, MAX_STEPS, NOT_EPOCH, IMPORT, CHANGES };

static int told[CHANGES];   /* what each change answered */
static unshard *long_lived; /* the session that it was asked of; NULL = it could not be opened */

static void facts_before(struct fixture *f)
{
	unshard *u;

	shell(f, "rm -f store.db*");
	u = open_session(f, f->store);
	if (!u || unshard_meta_set(u, "", "epoch", "1.5", NULL, &f->err) < 0 ||
	    unshard_meta_set(u, "", "trial_name", "kept", NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
	unshard_close(u);
}

static int forget_fact(void *ctx, const struct unshard_fact *fact)
{
	(void)ctx;
	(void)fact;
	return 0;
}

static int answered(struct fixture *f, int code)
{
	if (code < 0 && (f->err.code != code || !f->err.text[0]))
		fail_msg("%s: %d without a sentence", f->doing, code);
	f->err.code = 0;
	return code;
}

static void facts_run(struct fixture *f)
{
	static const char text[] =
		"{\"unshard_store\": 1, \"facts\": [{\"subject\": \"/elsewhere\", \"key\": \"seed\", "
		"\"value\": 3, \"origin\": \"o\", \"time_s\": 1}]}";
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .fact = forget_fact };
	unshard *u = open_session(f, f->store);
	char *json;

	long_lived = u;
	if (!u)
		return;
	told[SEED_1] = answered(f, unshard_meta_set(u, "", "seed", "1", NULL, &f->err));
	told[SEED_2] = answered(f, unshard_meta_set(u, "", "seed", "2", NULL, &f->err));
	told[MAX_STEPS] = answered(f, unshard_meta_set(u, "a", "max_steps", "9", NULL, &f->err));
	told[NOT_EPOCH] = answered(f, unshard_meta_unset(u, "", "epoch", &f->err));
	told[IMPORT] = answered(f, unshard_meta_import(u, text, NULL, &f->err));
	answered(f, unshard_meta_list(u, "a", &calls, &f->err));
	if (answered(f, unshard_meta_export(u, &json, &f->err)) == 0)
		unshard_free(json);
	answered(f, unshard_meta_clear_cache(u, &f->err));
}

static int collect(void *ctx, const struct unshard_fact *fact)
{
	char line[200], *text = ctx;

	snprintf(line, sizeof(line), "%s=%s ", fact->key, fact->json);
	strncat(text, line, 900 - strlen(text));
	return 0;
}

static void expect(struct fixture *f, const char *facts, const char *one, bool may, bool must)
{
	bool is = strstr(facts, one);

	if ((is && !may) || (!is && must))
		fail_msg("%s: \"%s\" is %s in: %s", f->doing, one, is ? "" : "not", facts);
}

/* The session that went on through the fault sees what others set, and sets. */
static void go_on(struct fixture *f)
{
	char facts[1000] = "";
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = facts, .fact = collect };

	if (!long_lived)
		return;
	if (unshard_meta_list(long_lived, "a", &calls, &f->err) < 0 ||
	    unshard_meta_set(long_lived, "", "seed", "8", NULL, &f->err) < 0)
		fail_msg("%s: afterwards: %s", f->doing, f->err.text);
	expect(f, facts, "seed=7", true, true);
	unshard_close(long_lived);
}

static void facts_after(struct fixture *f)
{
	char facts[1000] = "", elsewhere[1000] = "";
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = facts, .fact = collect };
	unshard *u = open_session(f, f->store);
	char *json = NULL;

	if (!u || unshard_meta_list(u, "a", &calls, &f->err) < 0 || unshard_meta_export(u, &json, &f->err) < 0)
		fail_msg("%s: %s", f->doing, f->err.text);
	snprintf(elsewhere, sizeof(elsewhere), "%s", strstr(json, "/elsewhere") ? "elsewhere" : "");
	unshard_free(json);
	expect(f, facts, "trial_name=\"kept\"", true, true);
	if (long_lived) {
		expect(f, facts, "seed=2", true, told[SEED_2] == 0);
		expect(f, facts, "seed=1", told[SEED_2] < 0, told[SEED_1] == 0 && !strstr(facts, "seed=2"));
		expect(f, facts, "max_steps=9", true, told[MAX_STEPS] == 0);
		expect(f, facts, "epoch=1.5", told[NOT_EPOCH] < 0, false);
		expect(f, elsewhere, "elsewhere", true, told[IMPORT] == 0);
	}
	if (answered(f, unshard_meta_set(u, "", "seed", "7", NULL, &f->err)) < 0)
		fail_msg("%s: %s", f->doing, f->err.text);
	unshard_close(u);
	go_on(f);
	shell(f, "test -z \"$(ls | grep corrupt)\"");
}

static void facts_that_were_acknowledged_are_kept(void **state)
{
	static const struct trial t = { facts_before, facts_run, facts_after };
	struct fixture *f = *state;

	shell(f, "mkdir -p source/a");
	try_all(f, &t);
}

/* -- repair -- */

static int repaired;

static void repair_before(struct fixture *f)
{
	shell(f, "rm -rf out out.partial-*");
}

static void repair_run(struct fixture *f)
{
	unshard *u = open_session(f, NULL);

	repaired = -EIO;
	if (!u)
		return;
	repaired = answered(f, unshard_repair(u, "", f->out, 0, NULL, &f->err));
	unshard_close(u);
}

/* What was begun may stay where it is its removal that failed. */
static void repair_after(struct fixture *f)
{
	const bool removal = faults_plan->calls & (1u << FAULTS_RENAME | 1u << FAULTS_OPEN | 1u << FAULTS_READDIR |
						   1u << FAULTS_STAT | 1u << FAULTS_MALLOC);
	unshard *u;

	if (faults_plan->calls == 1u << FAULTS_WRITE && repaired < 0 &&
	    (faults_plan->action == FAULTS_SHORT || repaired != -faults_plan->error))
		fail_msg("%s: repair answers %d", f->doing, repaired);
	if (repaired == 0)
		shell(f, "diff -r out right");
	else if (repaired > 0 && faults_plan->error == EIO) /* directories were passed over, and told */
		shell(f, "test ! -e out || ! diff -r out right | grep -v '^Only in right'");
	else
		shell(f, "test ! -e out || diff -r out right");
	if (!removal || repaired >= 0)
		shell(f, "test -z \"$(ls | grep partial)\"");
	if (repaired == 0)
		return;
	shell(f, "rm -rf out");
	u = open_session(f, NULL);
	if (!u || unshard_repair(u, "", f->out, 0, NULL, &f->err) != 0)
		fail_msg("%s: afterwards: %s", f->doing, f->err.text);
	unshard_close(u);
	shell(f, "diff -r out right");
}

/* Files of another number of ranks are left out, and an element type is made the others'. */
static void a_repaired_copy_is_whole_or_not_there(void **state)
{
	static const struct trial t = { repair_before, repair_run, repair_after };
	struct fixture *f = *state;

	shell(f, "mkdir -p source/step/actor/huggingface && cd source/step/actor && "
		 "cp " UNSHARD_GOLDEN "/ranks/fsdp2/* . && "
		 "cp model_world_size_2_rank_0.pt model_world_size_3_rank_0.pt && "
		 "echo text >huggingface/readme && ln -s huggingface/readme readme");
	repair_run(f);
	if (repaired < 0)
		fail_msg("%s", f->err.text);
	shell(f, "mv out right");
	try_all(f, &t);
}

/* -- configs -- */

static int judged;
static size_t n_findings;

static int count_finding(void *ctx, const struct unshard_finding *finding)
{
	(void)ctx;
	n_findings += finding->severity == UNSHARD_PROBLEM;
	return 0;
}

static void config_before(struct fixture *f)
{
	(void)f;
	n_findings = 0;
}

static void config_run(struct fixture *f)
{
	static const char *const files[] = {
		UNSHARD_GOLDEN "/check/names_deepspeed.bad.json",
		UNSHARD_GOLDEN "/check/fsdp2_torch.bad.yaml",
	};
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .finding = count_finding };
	const char *kinds[2];

	judged = answered(f, unshard_check_config(files, 2, "torch=2.2.2", &calls, kinds, NULL, &f->err));
}

static size_t right_findings;

static void config_after(struct fixture *f)
{
	if (judged == 0 && n_findings != right_findings)
		fail_msg("%s: %zu findings, not %zu", f->doing, n_findings, right_findings);
	config_before(f);
	config_run(f);
	if (judged < 0 || n_findings != right_findings)
		fail_msg("%s: afterwards: %zu findings, not %zu", f->doing, n_findings, right_findings);
}

static void a_config_is_judged_rightly_or_not_at_all(void **state)
{
	static const struct trial t = { config_before, config_run, config_after };
	struct fixture *f = *state;

	config_run(f);
	assert_int_equal(judged, 0);
	right_findings = n_findings;
	assert_true(right_findings > 0);
	try_all(f, &t);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(facts_that_were_acknowledged_are_kept),
		TEST(a_repaired_copy_is_whole_or_not_there),
		TEST(a_config_is_judged_rightly_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
