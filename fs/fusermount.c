/* It gets the number of a socket in _FUSE_COMMFD and sends the descriptor over it (libfuse's lib/mount.c). */
#include "fusermount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_FOUND = 127 }; /* as a shell's exit status */

static void program_run(const char *const argv[])
{
	execvp(argv[0], (char *const *)argv);
	_exit(NOT_FOUND);
}

static int status_of(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The descriptor that comes with one byte; -1 where the other end closes without. */
static int receive_fd(int socket)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	const struct cmsghdr *header;
	ssize_t n;
	int fd;

	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

int fs_fusermount_mount(const char *path, const char *opts)
{
	const char *const argv[] = { "fusermount3", "-o", opts, "--", path, NULL };
	char number[16];
	int pair[2], fd;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		snprintf(number, sizeof(number), "%d", pair[0]);
		if (fcntl(pair[0], F_SETFD, 0) < 0 || setenv("_FUSE_COMMFD", number, 1) < 0)
			_exit(NOT_FOUND);
		program_run(argv);
	}
	close(pair[0]);
	fd = child > 0 ? receive_fd(pair[1]) : -1;
	close(pair[1]);
	if (child > 0)
		status_of(child);
	return fd;
}

int fs_fusermount_unmount(const char *path, bool lazy)
{
	const char *const argv[] = { "fusermount3", lazy ? "-uqz" : "-uq", "--", path, NULL };
	pid_t child = fork();
	int status;

	if (child == 0)
		program_run(argv);
	if (child < 0)
		return -errno;
	status = status_of(child);
	return status == 0 ? 0 : status == NOT_FOUND ? -ENOSYS : -EBUSY;
}
