/* The turn to change a store: one at a time has it, the others wait, and one that ends leaves it to them. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shell.h"
#include "store/turn.h"

struct fixture {
	char dir[32], path[64], name[64];
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_turn_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.path, sizeof(f.path), "%s/store.db", f.dir);
	snprintf(f.name, sizeof(f.name), "%s/store.db-turn", f.dir);
	shell(f.dir, "umask 077; touch store.db; chmod 660 store.db");
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static void one_at_a_time_has_it(void **state)
{
	struct fixture *f = *state;
	struct turn first = TURN_INIT, second = TURN_INIT;
	struct uns_err err = { 0 };

	assert_int_equal(turn_take(&first, f->path, 0, &err), 0);
	assert_int_equal(turn_take(&first, f->path, 0, &err), 0);
	assert_int_equal(turn_take(&second, f->path, 0, &err), -EBUSY);
	assert_non_null(strstr(err.text, "store.db was not changed: others held the lock on "));
	assert_non_null(strstr(err.text, "store.db-turn"));
	assert_int_equal(second.fd, -1);
	turn_give(&first);
	assert_int_equal(turn_take(&second, f->path, 0, NULL), 0);
	turn_give(&second);
}

/* Its mode is the store's, whatever the umask; a link to the store leads to the same lock. */
static void whoever_may_write_the_store_finds_the_same_lock(void **state)
{
	struct fixture *f = *state;
	struct turn first = TURN_INIT, second = TURN_INIT;
	char link[64];
	struct stat st;

	snprintf(link, sizeof(link), "%s/link", f->dir);
	assert_int_equal(symlink(f->path, link), 0);
	assert_int_equal(turn_take(&first, link, 0, NULL), 0);
	assert_int_equal(stat(f->name, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
	assert_int_equal(turn_take(&second, f->path, 0, NULL), -EBUSY);
	turn_give(&first);
	assert_int_equal(access(f->name, F_OK), 0);
}

/* Another process that has it, until it is killed. */
static pid_t holder(const struct fixture *f)
{
	struct turn turn = TURN_INIT;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (turn_take(&turn, f->path, 0, NULL) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static void one_that_is_killed_gives_it_back(void **state)
{
	struct fixture *f = *state;
	struct turn turn = TURN_INIT;
	pid_t pid = holder(f);

	assert_int_equal(turn_take(&turn, f->path, 0, NULL), -EBUSY);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(turn_take(&turn, f->path, 60, NULL), 0);
	turn_give(&turn);
}

static void on_alarm(int number)
{
	(void)number;
}

/* The alarm comes again, in case that one came before the wait. */
static void a_signal_ends_the_wait(void **state)
{
	const struct itimerval soon = { .it_value.tv_usec = 50000, .it_interval.tv_usec = 50000 }, never = { 0 };
	const struct sigaction handled = { .sa_handler = on_alarm };
	struct fixture *f = *state;
	struct turn turn = TURN_INIT;
	struct uns_err err = { 0 };
	struct sigaction before;
	pid_t pid = holder(f);

	sigaction(SIGALRM, &handled, &before);
	setitimer(ITIMER_REAL, &soon, NULL);
	assert_int_equal(turn_take(&turn, f->path, TURN_WAIT_S, &err), -EINTR);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_non_null(strstr(err.text, "a signal ended the wait"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void a_lock_that_cannot_be_made_is_said(void **state)
{
	struct fixture *f = *state;
	struct turn turn = TURN_INIT;
	struct uns_err err = { 0 };

	assert_int_equal(symlink("/nowhere/else", f->name), 0);
	assert_int_equal(turn_take(&turn, f->path, 0, &err), -ELOOP);
	assert_non_null(strstr(err.text, "cannot be written: "));
	assert_non_null(strstr(err.text, "store.db-turn, which programs lock to take turns: "));
	assert_int_equal(turn.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_at_a_time_has_it, setup, teardown),
		cmocka_unit_test_setup_teardown(whoever_may_write_the_store_finds_the_same_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_killed_gives_it_back, setup, teardown),
		cmocka_unit_test_setup_teardown(a_signal_ends_the_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(a_lock_that_cannot_be_made_is_said, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
