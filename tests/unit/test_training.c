/* trainer_state.json through a session: what is made where it is missing, out of what; and that a read which
 * fails in passing is an error of that moment, never a reason to make or to borrow something else.
 *
 * This program's own pread, preadv2 and syscall stand before libc's, and fail for one file when told to. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "shell.h"
#include "unshard.h"

/* -- faults -- */

static struct {
	const char *file; /* how the path ends; NULL = nothing fails */
	bool open;        /* opening it fails, else reading */
	int error;
	unsigned n; /* how often it did */
} fault;

static bool ends(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static bool read_fails(int fd)
{
	char name[64], path[4096];
	ssize_t n;

	if (!fault.file || fault.open)
		return false;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	if (!ends(path, fault.file))
		return false;
	fault.n++;
	errno = fault.error;
	return true;
}

static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
	ssize_t (*real)(int, void *, size_t, off_t) = next("pread64");

	return read_fails(fd) ? -1 : real(fd, buf, n, offset);
}

ssize_t preadv2(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
	ssize_t (*real)(int, const struct iovec *, int, off_t, int) = next("preadv64v2");

	return read_fails(fd) ? -1 : real(fd, v, n, offset, flags);
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = next("syscall"), a[4];
	va_list ap;
	size_t i;

	va_start(ap, number);
	for (i = 0; i < 4; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_openat2 && fault.file && fault.open && ends((const char *)a[1], fault.file)) {
		fault.n++;
		errno = fault.error;
		return -1;
	}
	return real(number, a[0], a[1], a[2], a[3]);
}

/* -- a run -- */

struct fixture {
	char dir[40], source[64];
	struct unshard_options options;
	struct unshard_error err;
};

/* checkpoint-2 of a Trainer with FSDP, which has lost its trainer_state.json. */
static void start(struct fixture *f)
{
	*f = (struct fixture){ .dir = "/tmp/uns_training_XXXXXX",
			       .options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true } };
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->source, sizeof(f->source), "%s/run", f->dir);
	shell(f->dir, "cp -r " UNSHARD_GOLDEN "/run . && mv run/checkpoint-2/trainer_state.json lost");
}

static void end(struct fixture *f)
{
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

static unshard *open_session(struct fixture *f)
{
	unshard *u;

	if (unshard_open(f->source, &f->options, &u, &f->err) < 0)
		fail_msg("%s", f->err.text);
	return u;
}

/* A file's text, or NULL and why. */
static char *text_of(unshard *u, const char *path, struct unshard_error *err)
{
	unshard_file *file;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char *text;

	if (unshard_file_open(u, path, NULL, &file, &st, err) < 0)
		return NULL;
	text = calloc(1, st.size_bytes + 1);
	assert_int_equal(unshard_pread(file, text, st.size_bytes, 0, NULL), st.size_bytes);
	unshard_file_close(file);
	return text;
}

#define STATE "full/checkpoint-2/trainer_state.json"

/* -- what is made -- */

#define CONTROL                                     \
	"\"TrainerControl\": {\n"                   \
	"      \"args\": {\n"                       \
	"        \"should_epoch_stop\": false,\n"   \
	"        \"should_evaluate\": false,\n"     \
	"        \"should_log\": false,\n"          \
	"        \"should_save\": true,\n"          \
	"        \"should_training_stop\": false\n" \
	"      },\n"                                \
	"      \"attributes\": {}\n"                \
	"    }"
/* A later checkpoint's, as TrainerState writes it, with this in it. */
#define LATER(more)                                                                                   \
	"mkdir run/checkpoint-4 && echo '{\"global_step\": 4, \"epoch\": 0.5, \"max_steps\": 8, "     \
	"\"num_train_epochs\": 1, \"train_batch_size\": 3, \"logging_steps\": 1, \"eval_steps\": 5, " \
	"\"save_steps\": 2, \"log_history\": []" more "}' > run/checkpoint-4/trainer_state.json"
#define STOPPING(n)                                                                                \
	"{\"args\": {\"early_stopping_patience\": 3}, \"attributes\": {\"early_stopping_patience_" \
	"counter\": " #n "}}"

static const struct {
	const char *name, *change;
	const char *state[4];    /* in the made file */
	const char *not_state;   /* not in it; NULL = nothing */
	const char *problems[4]; /* in problems.txt */
	const char *no_problem;
} made[] = {
	{ "nothing beside it",
	  "true",
	  { "\"stateful_callbacks\": {\n    " CONTROL "\n  }", "\"epoch\": 0.0", "\"logging_steps\": 500",
	    "\"global_step\": 2" },
	  NULL,
	  { "assumed, because no file or fact records them: epoch = 0.0, log_history = [], max_steps = 0, "
	    "num_input_tokens_seen = 0, num_train_epochs = 0, total_flos = 0.",
	    "run/checkpoint-2 eval_steps=N logging_steps=N save_steps=N train_batch_size=N` or by "
	    "mounting with -o fact=eval_steps=N,fact=logging_steps=N,",
	    "stateful_callbacks = {\"TrainerControl\":{", "4.40 needs null" },
	  NULL },
	{ "a later one tells",
	  LATER(", \"stateful_callbacks\": {\"TrainerControl\": {\"args\": {\"should_log\": true}, "
		"\"attributes\": {}}}"),
	  { "\"stateful_callbacks\": {\n    " CONTROL "\n  }", "\"epoch\": 0.25", "\"num_train_epochs\": 1",
	    "\"logging_steps\": 1" },
	  "\"should_log\": true",
	  { "assumed, because no file or fact records them: num_input_tokens_seen = 0, total_flos = 0." },
	  "a Trainer that resumes uses" },
	{ "callbacks of its own",
	  LATER(", \"stateful_callbacks\": {\"EarlyStoppingCallback\": " STOPPING(2) ", \"Two\": [" STOPPING(
		  1) ", {\"args\": {}, \"attributes\": {}}]}"),
	  { "\"EarlyStoppingCallback\": {\n      \"args\": {\n        \"early_stopping_patience\": 3\n"
	    "      },\n      \"attributes\": {}\n    },\n    " CONTROL,
	    "\"Two\": [\n      {\n        \"args\": {\n          \"early_stopping_patience\": 3\n"
	    "        },\n        \"attributes\": {}\n      },\n      {\n        \"args\": {},\n" },
	  "counter",
	  { "the callback \"EarlyStoppingCallback\" has the arguments found in "
	    "checkpoint-4/trainer_state.json;",
	    "the callback \"Two\" has" },
	  "stateful_callbacks =" },
	{ "a version that does not know them",
	  LATER(""),
	  { "\"save_steps\": 2" },
	  "stateful_callbacks",
	  { "total_flos = 0." },
	  "stateful_callbacks" },
	{ "a later one that is damaged tells nothing",
	  LATER("") "; truncate -s 100 run/checkpoint-4/trainer_state.json",
	  { "\"stateful_callbacks\": {\n    " CONTROL, "\"save_steps\": 2" },
	  NULL,
	  { "logging_steps = 500" },
	  "save_steps = 500" },
	{ "its own, not valid as a whole",
	  "echo '{\"global_step\": 2, \"epoch\": 0.5, \"stateful_callbacks\": {\"EarlyStoppingCallback\": " STOPPING(
		  2) "}}' > run/checkpoint-2/trainer_state.json",
	  { "\"early_stopping_patience_counter\": 2", CONTROL, "\"epoch\": 0.5" },
	  NULL,
	  { "trainer_state.json has no eval_steps, so the view shows a copy with what is missing" },
	  "epoch = 0.0" },
	{ "its own history tells the epoch",
	  "echo '{\"global_step\": 2, \"log_history\": [{\"step\": 1, \"epoch\": 0.1}, {\"step\": 2, "
	  "\"epoch\": 0.2}]}' > run/checkpoint-2/trainer_state.json",
	  { "\"epoch\": 0.2,\n  \"eval_steps\"", "\"epoch\": 0.1" },
	  NULL,
	  { "max_steps = 0" },
	  "epoch = 0.0" },
	{ "the epoch is asked of others also where all else is known",
	  LATER("") "; echo '{\"global_step\": 2, \"train_batch_size\": 7, \"logging_steps\": 2, "
		    "\"eval_steps\": 2, \"max_steps\": 8, \"log_history\": []}' > "
		    "run/checkpoint-2/trainer_state.json",
	  { "\"epoch\": 0.25", "\"num_train_epochs\": 1", "\"train_batch_size\": 7" },
	  NULL,
	  { "trainer_state.json has no save_steps, so" },
	  "epoch = 0.0" },
};

static void expect_all(const char *name, const char *text, const char *const *parts, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (parts[i] && !strstr(text, parts[i]))
			fail_msg("%s: no \"%s\" in\n%s", name, parts[i], text);
}

static void what_is_made(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(made) / sizeof(*made); i++) {
		struct fixture f;
		char *text;
		unshard *u;

		start(&f);
		shell(f.dir, made[i].change);
		u = open_session(&f);
		text = text_of(u, STATE, &f.err);
		if (!text)
			fail_msg("%s: %s", made[i].name, f.err.text);
		expect_all(made[i].name, text, made[i].state, 4);
		if (made[i].not_state && strstr(text, made[i].not_state))
			fail_msg("%s: \"%s\" in\n%s", made[i].name, made[i].not_state, text);
		free(text);
		text = text_of(u, "full/checkpoint-2/.unshard/problems.txt", &f.err);
		expect_all(made[i].name, text, made[i].problems, 4);
		if (made[i].no_problem && strstr(text, made[i].no_problem))
			fail_msg("%s: \"%s\" in\n%s", made[i].name, made[i].no_problem, text);
		free(text);
		unshard_close(u);
		end(&f);
	}
}

/* 4.40 refuses the key, whatever it holds. */
static void a_fact_of_null_leaves_the_key_out(void **state)
{
	static const char *const facts[] = { "stateful_callbacks=null" };
	struct fixture f;
	unshard *u;
	char *text;

	(void)state;
	start(&f);
	f.options.fact = facts;
	f.options.n_fact = 1;
	u = open_session(&f);
	text = text_of(u, STATE, &f.err);
	assert_null(strstr(text, "stateful_callbacks"));
	free(text);
	unshard_close(u);
	end(&f);
}

/* -- a line for the log, and for `unshard show` -- */

static void keep_line(void *ctx, int level, const char *line)
{
	char *text = ctx;

	(void)level;
	strncat(text, line, 8191 - strlen(text));
	strncat(text, "\n", 8191 - strlen(text));
}

static unsigned count(const char *text, const char *part)
{
	unsigned n = 0;

	while ((text = strstr(text, part))) {
		n++;
		text += strlen(part);
	}
	return n;
}

static void what_is_assumed_is_said(void **state)
{
	static char lines[8192];
	char command[512], *text;
	struct fixture f;
	unshard *u;

	(void)state;
	start(&f);
	f.options.log = keep_line;
	f.options.log_ctx = lines;
	f.options.log_level = 1;
	lines[0] = '\0';
	u = open_session(&f);
	snprintf(command, sizeof(command),
		 "`unshard meta set %s/checkpoint-2 eval_steps=N logging_steps=N save_steps=N "
		 "train_batch_size=N`",
		 f.source);
	free(text_of(u, STATE, &f.err));
	free(text_of(u, "dcp/checkpoint-2/trainer_state.json", &f.err));
	assert_int_equal(count(lines, command), 1);
	assert_true(unshard_describe(u, "checkpoint-2", UNSHARD_INFO, NULL, &text, &f.err) >= 0);
	assert_int_equal(count(text, command), 4); /* full, full-fsdp, dcp, universal */
	unshard_free(text);
	unshard_close(u);
	end(&f);
}

/* -- faults -- */

#define ZERO                                                                                    \
	"rm -r run/checkpoint-2 && cp -r " UNSHARD_GOLDEN "/zero/z2_w3 run/checkpoint-2 && cd " \
	"run/checkpoint-2 && rm -r *_universal && cp -r global_step2 global_step10 && touch "   \
	"rng_state_0.pth"
#define RANKS                                                                              \
	"rm -r run && mkdir -p run/global_step_2 && cp -r " UNSHARD_GOLDEN "/ranks/fsdp2 " \
	"run/global_step_2/actor && echo '{\"world_size\": 2}' > "                         \
	"run/global_step_2/actor/fsdp_config.json && echo 2 > "                            \
	"run/latest_checkpointed_iteration.txt"

static const struct {
	const char *name, *change, *file, *asked;
	bool open;
	int error;
} faults[] = {
	{ "its own", "mv lost run/checkpoint-2/trainer_state.json", "checkpoint-2/trainer_state.json", STATE, false,
	  EIO },
	{ "its own", "mv lost run/checkpoint-2/trainer_state.json", "checkpoint-2/trainer_state.json", STATE, false,
	  ESTALE },
	{ "its own", "mv lost run/checkpoint-2/trainer_state.json", "checkpoint-2/trainer_state.json", STATE, true,
	  EMFILE },
	{ "its own", "mv lost run/checkpoint-2/trainer_state.json", "checkpoint-2/trainer_state.json",
	  "dcp/checkpoint-2/trainer_state.json", true, EACCES },
	{ "a later one's", LATER(""), "checkpoint-4/trainer_state.json", STATE, false, EIO },
	{ "a later one's", LATER(""), "checkpoint-4/trainer_state.json", STATE, true, EACCES },
	{ "the run's", "mv lost run/trainer_state.json", "trainer_state.json", STATE, false, EIO },
	{ "arguments", "echo '{\"logging_steps\": 3}' > run/checkpoint-2/training_args.json", "training_args.json",
	  STATE, false, EIO },
	{ "arguments", "echo '{\"logging_steps\": 3}' > run/training_args.json", "training_args.json", STATE, true,
	  ENFILE },
	{ "arguments, pickled", "cp run/checkpoint-2/scheduler.pt run/checkpoint-2/training_args.bin",
	  "training_args.bin", STATE, false, EIO },
	{ "arguments, pickled", "cp run/checkpoint-2/scheduler.pt run/training_args.bin", "training_args.bin", STATE,
	  true, EACCES },
	{ "the scheduler", "true", "scheduler.pt", STATE, false, EIO },
	{ "the scheduler", "true", "scheduler.pt", STATE, true, ENOMEM },
	{ "the optimizer", "true", "optimizer_0/__0_0.distcp", STATE, false, EIO },
	{ "the optimizer", "true", "optimizer_0/__0_0.distcp", STATE, true, EMFILE },
	{ "the config", "true", "run/config.json", "weights/checkpoint-2/config.json", false, EIO },
	{ "the config", "true", "config.json", "weights/checkpoint-2/config.json", true, EACCES },
	{ "the config of its own", "mv run/config.json run/checkpoint-2", "checkpoint-2/config.json",
	  "weights/checkpoint-2/config.json", false, EIO },
	{ "which tag it is", ZERO, "checkpoint-2/latest", "universal/checkpoint-2/latest_universal", false, EIO },
	{ "which tag it is", ZERO, "checkpoint-2/latest", "weights/checkpoint-2/model.safetensors", true, EMFILE },
	{ "whether that is a tag", ZERO, "checkpoint-2/global_step2", "weights/checkpoint-2/model.safetensors", true,
	  EMFILE },
	{ "the ranks' number", RANKS, "fsdp_config.json", "weights/global_step_2/actor/model.safetensors", false, EIO },
	{ "whether the save has ended", RANKS, "latest_checkpointed_iteration.txt",
	  "full/global_step_2/actor/optimizer.pt", false, EIO },
	{ "the shards' directory", "true", "checkpoint-2/pytorch_model_fsdp_0",
	  "weights/checkpoint-2/model.safetensors", true, EACCES },
	{ "what FSDP saved twice", "true", "pytorch_model_fsdp_0/__0_0.distcp",
	  "weights/checkpoint-2/model.safetensors", false, EIO },
};

static void expect_text(struct fixture *f, unshard *u, const char *name, const char *path, const char *wanted)
{
	char *text = text_of(u, path, &f->err);

	if (!text)
		fail_msg("%s, afterwards: %s", name, f->err.text);
	if (strcmp(text, wanted) != 0)
		fail_msg("%s, afterwards:\n%s\ninstead of\n%s", name, text, wanted);
	free(text);
}

/* Bytes of a model are compared by their beginning: a header, which tells what is in it. */
static void a_failing_read_is_forgotten(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		const char *name = faults[i].name, *path = faults[i].asked;
		char *wanted, *problems, *text, told[128];
		struct unshard_stat st = { UNSHARD_STAT_INIT }, whole = { UNSHARD_STAT_INIT };
		struct fixture f;
		unshard *u;
		int code;

		start(&f);
		shell(f.dir, faults[i].change);
		u = open_session(&f);
		wanted = text_of(u, path, &f.err);
		snprintf(told, sizeof(told), "%.*s/.unshard/problems.txt", (int)(strrchr(path, '/') - path), path);
		problems = text_of(u, told, &f.err);
		assert_int_equal(unshard_stat(u, path, &whole, NULL), 0);
		unshard_close(u);

		u = open_session(&f);
		fault.n = 0;
		fault.error = faults[i].error;
		fault.open = faults[i].open;
		fault.file = faults[i].file;
		code = unshard_stat(u, path, &st, &f.err);
		fault.file = NULL;
		if (!fault.n)
			fail_msg("%s: nothing failed", name);
		if (code >= 0 || code == -ENOENT)
			fail_msg("%s, %s: %d", name, strerror(faults[i].error), code);
		/* Which file it was, too. */
		if (faults[i].error != ENOMEM &&
		    (!strstr(f.err.text, strerror(faults[i].error)) || !strchr(f.err.text, '/')))
			fail_msg("%s: %s", name, f.err.text);
		expect_text(&f, u, name, path, wanted);
		assert_int_equal(unshard_stat(u, path, &st, NULL), 0);
		assert_int_equal(st.size_bytes, whole.size_bytes);
		text = text_of(u, told, &f.err);
		assert_string_equal(text, problems);
		free(text);
		unshard_close(u);

		u = open_session(&f);
		expect_text(&f, u, name, path, wanted);
		unshard_close(u);
		free(wanted);
		free(problems);
		end(&f);
	}
}

/* The run's directory cannot be listed: siblings, config and tokenizer may be there. */
static void a_directory_that_cannot_be_listed(void **state)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct fixture f;
	unshard *u;

	(void)state;
	start(&f);
	shell(f.dir, "mkdir top && mv run top/run");
	snprintf(f.source, sizeof(f.source), "%s/top", f.dir);
	u = open_session(&f);
	assert_int_equal(unshard_stat(u, "full/run", &st, &f.err), 0);
	fault.file = "run";
	fault.open = true;
	fault.error = EACCES;
	fault.n = 0;
	assert_int_equal(unshard_stat(u, "full/run/checkpoint-2/trainer_state.json", &st, &f.err), -EACCES);
	fault.file = NULL;
	assert_true(fault.n > 0);
	assert_int_equal(unshard_stat(u, "full/run/checkpoint-2/trainer_state.json", &st, &f.err), 0);
	assert_int_equal(unshard_stat(u, "weights/run/checkpoint-2/config.json", &st, &f.err), 0);
	unshard_close(u);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_made),
		cmocka_unit_test(a_fact_of_null_leaves_the_key_out),
		cmocka_unit_test(what_is_assumed_is_said),
		cmocka_unit_test(a_failing_read_is_forgotten),
		cmocka_unit_test(a_directory_that_cannot_be_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
