/* fs/confine.c: what a process, and the threads and programs that it starts, may still do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../fs/confine.h"
#include "shell.h"

static int create(const char *name)
{
	return open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
}

static int write_in_place(const char *name)
{
	return open(name, O_WRONLY);
}

static int read_it(const char *name)
{
	return open(name, O_RDONLY);
}

static int cut(const char *name)
{
	return truncate(name, 1);
}

static int make_directory(const char *name)
{
	return mkdir(name, 0700);
}

static int replace(const char *name)
{
	return rename(name, "aside");
}

static const struct {
	const char *name;
	int (*call)(const char *name);
	const char *on;
	bool elsewhere; /* is allowed there too */
} calls[] = {
	{ "read", read_it, "file", true },
	{ "write", write_in_place, "file", false },
	{ "truncate", cut, "file", false },
	{ "create", create, "new", false },
	{ "mkdir", make_directory, "folder", false },
	{ "rename", replace, "file", false },
	{ "unlink", unlink, "other", false },
	{ "rmdir", rmdir, "empty", false },
};

enum { N_CALLS = sizeof(calls) / sizeof(*calls) };

static void *try_all(void *arg)
{
	int *bad = arg;
	size_t i;

	for (i = 0; i < N_CALLS; i++) {
		if (chdir("../outside") < 0)
			_exit(EXIT_FAILURE);
		errno = 0;
		if ((calls[i].call(calls[i].on) >= 0) != calls[i].elsewhere || (!calls[i].elsewhere && errno != EACCES))
			*bad |= 1 << i;
		if (chdir("../inside") < 0 || calls[i].call(calls[i].on) < 0)
			*bad |= 1 << (i + N_CALLS);
	}
	return NULL;
}

/* In a process of its own: what is given up stays so. */
static int confined(const char *dir, void *(*then)(void *))
{
	pthread_t thread;
	char inside[64];
	const char *writable[] = { "/nonexistent", inside };
	int bad = 0, status = 0;
	pid_t child = fork();

	if (child > 0) {
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		return WEXITSTATUS(status);
	}
	snprintf(inside, sizeof(inside), "%s/inside", dir);
	if (chdir(inside) < 0 || fs_confine(writable, 2, NULL) < 0 || pthread_create(&thread, NULL, then, &bad) != 0 ||
	    pthread_join(thread, NULL) != 0)
		_exit(EXIT_FAILURE);
	if (bad)
		fprintf(stderr, "calls %#x\n", (unsigned)bad);
	_exit(bad ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int setup(void **state)
{
	static char dir[32];

	strcpy(dir, "/tmp/uns_confine_XXXXXX");
	assert_non_null(mkdtemp(dir));
	shell(dir,
	      "for d in inside outside; do mkdir -p $d/empty && echo text > $d/file && echo text > $d/other; done");
	*state = dir;
	return 0;
}

static int teardown(void **state)
{
	shell(*state, "rm -r inside outside");
	return rmdir(*state);
}

static void writes_below_its_directories_alone(void **state)
{
	/* CONFIG_SECURITY_LANDLOCK: what Debian and Fedora build. */
	assert_true(syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 1);
	assert_int_equal(confined(*state, try_all), EXIT_SUCCESS);
}

/* SOURCE may lie beside what is written, or above it. */
static void writes_one_new_directory_and_renames_it(void **state)
{
	char partial[64], source[64], cache[64];
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .cache_dir = cache };
	int status = 0, code;
	unshard *u = NULL;
	pid_t child;

	snprintf(partial, sizeof(partial), "%s/inside/new.partial", (char *)*state);
	snprintf(source, sizeof(source), "%s/outside", (char *)*state);
	snprintf(cache, sizeof(cache), "%s/inside/empty",
		 (char *)*state); /* not the usual one: that may hold all of these */
	child = fork();
	if (child > 0) {
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		return;
	}
	code = unshard_open(source, &options, &u, NULL) < 0 || mkdir(partial, 0700) < 0 ||
	       fs_confine_writing(u, partial, NULL) < 0 || chdir(partial) < 0;
	code |= (create("new") < 0) << 1 | (make_directory("folder") < 0) << 2 | (unlink("new") < 0) << 3;
	code |= (write_in_place("../file") >= 0) << 4 | (create("../beside") >= 0) << 5 |
		(unlink("../other") >= 0) << 6;
	code |= (write_in_place("../../outside/file") >= 0) << 7 | (create("../../outside/new") >= 0) << 8;
	code |= (cut("../../outside/file") >= 0) << 9 | (rename("../new.partial", "../empty") < 0) << 10;
	if (code)
		fprintf(stderr, "calls %#x\n", (unsigned)code);
	_exit(code ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* "CapEff:" and the like of this thread, a bit for each. */
static unsigned long long field(const char *name)
{
	char line[256];
	unsigned long long value = ~0ULL;
	FILE *f = fopen("/proc/thread-self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 16);
	if (f)
		fclose(f);
	return value;
}

static void *look_at_capabilities(void *arg)
{
	static const char *const sets[] = { "CapEff:", "CapPrm:", "CapInh:", "CapAmb:" };
	int *bad = arg;
	size_t i;

	for (i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		if (field(sets[i]) & ~4ULL) /* CAP_DAC_READ_SEARCH */
			*bad |= 1 << i;
	if (field("NoNewPrivs:") != 1)
		*bad |= 0x100;
	/* Root's programs would have all of them again. */
	if (system("grep -q '^CapEff:[[:space:]]*000000000000000[04]$' /proc/self/status") != 0)
		*bad |= 0x200;
	return NULL;
}

static void has_no_capability_but_one(void **state)
{
	assert_int_equal(confined(*state, look_at_capabilities), EXIT_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(writes_below_its_directories_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(writes_one_new_directory_and_renames_it, setup, teardown),
		cmocka_unit_test_setup_teardown(has_no_capability_but_one, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
