/* What could not be looked at is never summed up as if it had been: while one call fails, whichever it is, a scan and a
 * check fail, or say so, or have the right answer. Each call of a session fails that is asked this alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "failing_calls.h"
#include "golden_sources.h"
#include "unshard.h"

enum { TEXT_BYTES = 1 << 14 };

static char dir[] = "/dev/shm/unshard-unseen-XXXXXX";

static void shell(const char *line)
{
	char text[2048];

	snprintf(text, sizeof(text), "cd %s && %s", dir, line);
	if (system(text) != 0)
		fail_msg("%s failed", text);
}

static int setup(void **state)
{
	(void)state;
	return setenv("G", UNSHARD_GOLDEN, 1) == 0 && mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	shell("rm -rf ../$(basename $PWD)");
	return 0;
}

static void make(const char *name)
{
	const struct golden_source *s = golden_sources;

	while (strcmp(s->name, name) != 0)
		s++;
	shell("rm -rf *");
	shell(s->make);
}

static int hear_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	char *text = ctx;
	size_t n = strlen(text);

	snprintf(text + n, TEXT_BYTES - n, "%s %llu %s %s\n", c->path, (unsigned long long)c->size_bytes,
		 unshard_state_name(c->state), c->problem ? c->problem : "");
	return 0;
}

static int hear_finding(void *ctx, const struct unshard_finding *f)
{
	char *text = ctx;
	size_t n = strlen(text);

	snprintf(text + n, TEXT_BYTES - n, "%s %s %s\n", f->path, f->check, f->text);
	return 0;
}

static int scan(unshard *u, const struct unshard_calls *calls, struct unshard_error *err)
{
	return unshard_scan(u, calls, err);
}

static int check(unshard *u, const struct unshard_calls *calls, struct unshard_error *err)
{
	return unshard_check(u, "", 0, calls, NULL, err);
}

typedef int ask_fn(unshard *u, const struct unshard_calls *calls, struct unshard_error *err);

/* A new session is asked while the nth such call fails. Returns the code. */
static int ask(ask_fn *question, enum faults_call call, int error, uint64_t nth, char text[TEXT_BYTES])
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true, .no_store = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = text, .checkpoint = hear_checkpoint,
					     .finding = hear_finding };
	struct unshard_error err = { 0 };
	unshard *u;
	int code;

	text[0] = '\0';
	assert_int_equal(unshard_open(dir, &options, &u, &err), 0);
	*faults_plan = (struct faults_plan){ .calls = 1u << call, .error = error, .nth = nth };
	faults_arm();
	code = question(u, &calls, &err);
	faults_disarm();
	unshard_close(u);
	return code;
}

static void fail_each(ask_fn *question, enum faults_call call, int error)
{
	static char right[TEXT_BYTES], text[TEXT_BYTES];
	const char *said = error == ENOMEM ? "out of memory" : strerror(error);
	uint64_t n, i;

	assert_int_equal(ask(question, call, error, UINT64_MAX, right), 0);
	n = faults_plan->count[call];
	assert_true(n > 0);
	for (i = 1; i <= n; i += failing_calls_step())
		if (ask(question, call, error, i, text) == 0 && strcmp(text, right) != 0 && !strstr(text, said))
			fail_msg("call %llu of %llu fails (%s)\ngot   %s\nright %s", (unsigned long long)i,
				 (unsigned long long)n, said, text, right);
}

static void each_fails(const char *source)
{
	static ask_fn *const questions[] = { scan, check };
	size_t i;

	make(source);
	for (i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		fail_each(questions[i], FAULTS_STAT, EACCES);
		fail_each(questions[i], FAULTS_STAT, EIO);
		fail_each(questions[i], FAULTS_OPEN, EACCES);
		fail_each(questions[i], FAULTS_OPEN, EIO);
		fail_each(questions[i], FAULTS_READ, EIO);
		fail_each(questions[i], FAULTS_READDIR, EIO);
	}
}

static void test_fsdp(void **state)
{
	(void)state;
	each_fails("fsdp");
}

static void test_a_save_whose_end_is_unknown(void **state)
{
	(void)state;
	each_fails("ranks");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsdp),
		cmocka_unit_test(test_a_save_whose_end_is_unknown),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
