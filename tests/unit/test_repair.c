/* unshard_repair: what ends a copy and why; what needs none. What is repaired, and how, is in tests/e2e. */
#include <errno.h>
#include <setjmp.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "fake_clock.h"
#include "unshard.h"

/* Source and copy lie on two file systems: the kernel does not copy between them by itself. */
struct fixture {
	char source[64], target[64], out[96];
	char kinds[256]; /* of what has changed: "stale tracker " */
	struct unshard_error err;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .source = "/tmp/unshard-repair-XXXXXX", .target = "/dev/shm/unshard-repair-XXXXXX" };
	if (!mkdtemp(f.source) || !mkdtemp(f.target))
		return -1;
	snprintf(f.out, sizeof(f.out), "%s/out", f.target);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	const struct fixture *f = *state;
	char line[256];

	snprintf(line, sizeof(line), "rm -rf %s %s", f->source, f->target);
	return system(line);
}

static void make(const struct fixture *f, const char *line)
{
	char whole[1024];

	snprintf(whole, sizeof(whole), "rm -rf %s/* %s/* && cd %s && %s", f->source, f->target, f->source, line);
	if (system(whole) != 0)
		fail_msg("%s", whole);
}

static int hear(void *ctx, const struct unshard_change *change)
{
	struct fixture *f = ctx;

	strncat(f->kinds, unshard_change_name(change->kind), sizeof(f->kinds) - strlen(f->kinds) - 2);
	strcat(f->kinds, " ");
	return 0;
}

static int repair(struct fixture *f)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .no_store = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .change = hear };
	unshard *u = NULL;
	int code;

	f->err = (struct unshard_error){ 0 };
	f->kinds[0] = '\0';
	assert_int_equal(unshard_open(f->source, &options, &u, &f->err), 0);
	code = unshard_repair(u, "", f->out, 0, &calls, &f->err);
	unshard_close(u);
	return code;
}

static void assert_nothing_is_left(const struct fixture *f)
{
	char line[128];

	snprintf(line, sizeof(line), "test -z \"$(ls %s)\"", f->target);
	assert_int_equal(system(line), 0);
}

#define RANKS(dir) "mkdir -p " dir " && cp " UNSHARD_GOLDEN "/ranks/fsdp2/* " dir
#define STALE      "cp step/model_world_size_2_rank_0.pt step/model_world_size_3_rank_0.pt"

/* A file that may not grow is a disk that is full, for whoever writes: first less is written than was to be,
 * then nothing, and only that says why. */
static void a_write_that_comes_short(void **state)
{
	const struct rlimit small = { 1000, RLIM_INFINITY };
	struct fixture *f = *state;
	struct rlimit before;
	int code;

	signal(SIGXFSZ, SIG_IGN);
	make(f, RANKS("step") " && " STALE);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	code = repair(f);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(code, -EFBIG);
	assert_non_null(strstr(f->err.text, strerror(EFBIG)));
	assert_non_null(strstr(f->err.text, f->out));
	assert_nothing_is_left(f);
	assert_int_equal(repair(f), 0);
	assert_string_equal(f->kinds, "stale ");
}

/* It would pass for success. */
static void an_errno_that_nobody_set(void **state)
{
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_fail(NULL, 0, "short"), -EIO);
	assert_int_equal(uns_fail(&err, 0, "short"), -EIO);
	assert_int_equal(err.code, -EIO);
	assert_string_equal(err.text, "short");
}

#define VERL "echo '{\"FSDP_version\": 2, \"world_size\": 2}' >"
#define ZERO "cp -r " UNSHARD_GOLDEN "/zero/z2_w3/global_step2 "

/* What lies below SOURCE, and what a repair changes: "" = it is sound, and there is no copy. */
static const struct {
	const char *line, *kinds;
} sources[] = {
	{ RANKS("step"), "" },
	{ RANKS("run/global_step_2/actor"), "" }, /* whose steps these are is not known */
	{ RANKS("run/global_step_2/actor") " && " VERL "run/global_step_2/actor/fsdp_config.json", "tracker " },
	{ RANKS("global_step_2") " && " VERL "global_step_2/fsdp_config.json", "tracker " },
	{ RANKS("run/actor") " && " VERL "run/actor/fsdp_config.json", "" }, /* no step's directory */
	{ RANKS("run/global_step_2/actor") " && " VERL "run/global_step_2/actor/fsdp_config.json && "
					   "printf 2 >run/latest_checkpointed_iteration.txt",
	  "" },
	{ RANKS("run/global_step_2/actor") " && echo '{\"last_global_step\": 2}' >run/checkpoint_tracker.json", "" },
	{ RANKS("run/global_step_2/actor") " && echo '{}' >run/checkpoint_tracker.json", "tracker " },
	{ "mkdir run && " ZERO "run", "tracker " },
	{ "mkdir run && " ZERO "run && printf global_step2 >run/latest", "" },
	/* A Trainer's: `latest` lies in each checkpoint, none in the directory above. */
	{ "mkdir -p run/checkpoint-2 && " ZERO "run/checkpoint-2 && printf global_step2 >run/checkpoint-2/latest && "
	  "cp " UNSHARD_GOLDEN "/run/checkpoint-2/trainer_state.json run/checkpoint-2",
	  "" },
	{ "mkdir -p run/checkpoint-2 && " ZERO "run/checkpoint-2 && printf global_step2 >run/checkpoint-2/latest && "
	  "cp " UNSHARD_GOLDEN "/run/checkpoint-2/trainer_state.json run/checkpoint-2 && "
	  "cp -r run/checkpoint-2 run/checkpoint-4",
	  "" },
	{ "mkdir -p run/checkpoint-2 && " ZERO "run/checkpoint-2 && "
	  "cp " UNSHARD_GOLDEN "/run/checkpoint-2/trainer_state.json run/checkpoint-2",
	  "tracker " },
	{ "cp -r " UNSHARD_GOLDEN "/run .", "" },
};

static void a_tracker_only_where_one_belongs(void **state)
{
	struct fixture *f = *state;
	size_t i;
	int code;

	for (i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
		make(f, sources[i].line);
		code = repair(f);
		if (code != 0 || strcmp(f->kinds, sources[i].kinds) != 0)
			fail_msg("%s: %d, %s%s", sources[i].line, code, f->kinds, f->err.text);
		if (!*f->kinds)
			assert_nothing_is_left(f);
		else if (access(f->out, F_OK) < 0)
			fail_msg("%s: there is no copy", sources[i].line);
	}
}

static bool on_network;
int __real_statfs64(const char *path, struct statfs64 *out);
int __wrap_statfs64(const char *path, struct statfs64 *out);
int __wrap_statfs64(const char *path, struct statfs64 *out)
{
	int code = __real_statfs64(path, out);

	if (on_network)
		out->f_type = 0x6969; /* NFS */
	return code;
}

/* On NFS a lock may be one host's alone: what looks abandoned may be another host's repair. */
static void what_looks_abandoned_on_a_network(void **state)
{
	struct fixture *f = *state;
	char path[128];

	fake_ahead_s = 120; /* the directory is old */
	for (on_network = true;; on_network = false) {
		make(f, RANKS("step") " && " STALE);
		snprintf(path, sizeof(path), "%s.partial-Others", f->out);
		assert_int_equal(mkdir(path, 0755), 0);
		assert_int_equal(repair(f), 0);
		assert_int_equal(access(path, F_OK), on_network ? 0 : -1);
		if (!on_network)
			break;
	}
	fake_ahead_s = 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_write_that_comes_short),
		TEST(an_errno_that_nobody_set),
		TEST(a_tracker_only_where_one_belongs),
		TEST(what_looks_abandoned_on_a_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
