/* One pipe, one message of fixed size: short enough to be written atomically. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail.h"
#include "notify.h"

struct report {
	struct unshard_error err; /* code 0 = live */
	char hint[256];
};

static void tell(const struct fs_options *options, const char *hint)
{
	if (options->live)
		options->live(options->ctx, *hint ? hint : NULL);
}

static int why_silent(pid_t child, struct unshard_error *err)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		return fs_fail(err, -EIO,
			       "the serving process was killed by signal %d (%s) before "
			       "the mount was ready",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
	return fs_fail(err, -EIO,
		       "the serving process ended with status %d before the mount was "
		       "ready",
		       WEXITSTATUS(status));
}

static int wait_for(int fd, pid_t child, const struct fs_options *options, struct unshard_error *err)
{
	struct report report;
	ssize_t n;

	do
		n = read(fd, &report, sizeof(report));
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n != sizeof(report))
		return why_silent(child, err);
	if (report.err.code)
		return fs_fail(err, report.err.code, "%s", report.err.text);
	tell(options, report.hint);
	return 0;
}

int fs_daemon_start(struct fs_daemon *daemon, const struct fs_options *options, struct unshard_error *err)
{
	int pipe_fd[2], code;
	pid_t child;

	*daemon = (struct fs_daemon){ .report_fd = -1, .foreground = options->foreground };
	if (options->foreground)
		return 0;
	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return fs_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL); /* or the child would print what is buffered once more */
	child = fork();
	code = -errno; /* of a fork that failed */
	if (child == 0) {
		close(pipe_fd[0]);
		daemon->report_fd = pipe_fd[1];
		return 0;
	}
	close(pipe_fd[1]);
	daemon->is_parent = true;
	if (child < 0) {
		close(pipe_fd[0]);
		return fs_fail(err, code, "cannot start the serving process: %s", strerror(-code));
	}
	return wait_for(pipe_fd[0], child, options, err);
}

static void send_report(struct fs_daemon *daemon, const struct report *report)
{
	ssize_t n;

	do
		n = write(daemon->report_fd, report, sizeof(*report));
	while (n < 0 && errno == EINTR);
	close(daemon->report_fd);
	daemon->report_fd = -1;
}

/* Not before the mount is live: until then Ctrl-C in the terminal must end both processes. */
static void leave_terminal(void)
{
	int fd = open("/dev/null", O_RDWR);

	setsid();
	if (chdir("/") < 0 || fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

void fs_daemon_live(struct fs_daemon *daemon, const struct fs_options *options, const char *hint)
{
	struct report report = { .err = { 0 } };

	daemon->is_live = true;
	if (daemon->foreground) {
		tell(options, hint);
		fs_notify("READY=1");
		return;
	}
	leave_terminal();
	snprintf(report.hint, sizeof(report.hint), "%s", hint);
	send_report(daemon, &report);
}

int fs_daemon_end(struct fs_daemon *daemon, int code, struct unshard_error *err)
{
	struct report report = { .err = { 0 } };

	if (daemon->foreground)
		return code;
	if (!daemon->is_live) {
		fs_fail(&report.err, code ? code : -EIO, "%s",
			err && err->code ? err->text : "the mount ended before it was ready");
		send_report(daemon, &report);
	}
	return 0;
}
