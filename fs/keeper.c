/* One pipe: a bool means unmount, and is true if there is the connection still; the pipe's end without one means that
 * the serving process ended. */
#include "keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fail.h"

/* What is left open would keep the mount's connection, and a reader of the terminal, waiting. */
static void close_all_but(int kept)
{
	DIR *all = opendir("/proc/self/fd");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd;
	const struct dirent *e;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	while (all && (e = readdir(all))) {
		fd = atoi(e->d_name); /* "." and ".." give 0 */
		if (fd > STDERR_FILENO && fd != kept && fd != dirfd(all))
			close(fd);
	}
	if (all)
		closedir(all);
}

/* What ps shows: the arguments of a process are in its own memory (proc(5), arg_start and arg_end of stat). */
static void call_oneself(const char *path)
{
	char text[4096], *field;
	unsigned long first, last;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC), i;
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	field = strrchr(text, ')'); /* the end of field 2; the name in it may hold anything */
	for (i = 2; field && i < 48; i++)
		field = strchr(field + 1, ' ');
	if (!field || sscanf(field, "%lu %lu", &first, &last) != 2 || last <= first)
		return;
	memset((void *)first, 0, last - first);
	snprintf((char *)first, last - first, "unshard: waits to unmount %s", path);
}

static void unmount(const char *path, uint64_t dev, bool connected)
{
	struct fs_mount now;

	if (!fs_mount_find(path, &now) || now.dev != dev || (!connected && !fs_is_stale(path)))
		return;
	if (umount2(path, MNT_DETACH) < 0)
		fs_fusermount_unmount(path, true);
}

/* The signals that end a mount, to its process group too, are the serving process's. */
static void keeper_run(int told, const char *path, uint64_t dev)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE };
	size_t i;
	ssize_t n;
	bool connected;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		signal(ends[i], SIG_IGN);
	if (chdir("/") < 0)
		_exit(EXIT_FAILURE);
	close_all_but(told);
	call_oneself(path);
	do
		n = read(told, &connected, sizeof(connected));
	while (n < 0 && errno == EINTR);
	if (n == sizeof(connected))
		unmount(path, dev, connected);
	_exit(EXIT_SUCCESS);
}

int fs_keeper_start(struct fs_keeper *keeper, const char *path, struct unshard_error *err)
{
	struct fs_mount mount;
	int fd[2], code;

	*keeper = (struct fs_keeper){ .fd = -1, .pid = -1 };
	if (!fs_mount_find(path, &mount)) /* unmounted again */
		return 0;
	if (pipe2(fd, O_CLOEXEC) < 0)
		return fs_fail(err, -errno, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL);
	keeper->pid = fork();
	code = -errno; /* of a fork that failed */
	if (keeper->pid == 0)
		keeper_run(fd[0], path, mount.dev);
	close(fd[0]);
	keeper->fd = fd[1];
	if (keeper->pid > 0)
		return 0;
	close(keeper->fd);
	return fs_fail(err, code, "cannot start the process that unmounts: %s", strerror(-code));
}

void fs_keeper_unmount(struct fs_keeper *keeper, bool connected)
{
	ssize_t n;

	if (keeper->pid <= 0)
		return;
	do
		n = write(keeper->fd, &connected, sizeof(connected));
	while (n < 0 && errno == EINTR);
	close(keeper->fd);
	while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
		;
	keeper->pid = -1;
}
