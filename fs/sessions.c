/* libfuse can read at several descriptors (clone_fd), but in its own loop only, which ends the mount when there is no
 * memory for a thread. Its custom input and output would do, and are left out of many builds. So each descriptor has a
 * whole session: libfuse takes it as "/dev/fd/N". */
#include "sessions.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ops.h"

struct fs_session {
	struct fuse_session *se;
	struct fs_session *next;
};

void fs_sessions_init(struct fs_sessions *sessions, struct fs *fs)
{
	*sessions = (struct fs_sessions){ .fs = fs };
	pthread_mutex_init(&sessions->lock, NULL);
}

static struct fuse_session *session_new(const struct fs_sessions *sessions)
{
	char name[] = "unshard", option[] = "-o", *argv[] = { name, option, (char *)sessions->opts };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se = fuse_session_new(&args, &fs_ops, sizeof(fs_ops), sessions->fs);

	fuse_opt_free_args(&args); /* libfuse copies them before it changes them */
	return se;
}

static int session_keep(struct fs_sessions *sessions, struct fuse_session *se)
{
	struct fs_session *session = malloc(sizeof(*session));

	if (!session)
		return -1;
	session->se = se;
	pthread_mutex_lock(&sessions->lock);
	session->next = sessions->all;
	sessions->all = session;
	pthread_mutex_unlock(&sessions->lock);
	return 0;
}

struct fuse_session *fs_sessions_first(struct fs_sessions *sessions, const char *opts)
{
	struct fuse_session *se;

	sessions->opts = opts;
	se = session_new(sessions);
	if (!se || session_keep(sessions, se) == 0)
		return se;
	fuse_session_destroy(se);
	return NULL;
}

/* libfuse's answer to the first request goes into a pipe in place of the kernel. Returns its length; 0 = it went to the
 * kernel, because there was no pipe. No other thread uses the session yet. */
static size_t answer_apart(struct fuse_session *se, const struct fuse_buf *request, void *answer, size_t size)
{
	const int fd = fuse_session_fd(se), kernel = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int ends[2] = { -1, -1 };
	ssize_t n = 0;
	bool apart = kernel >= 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && dup3(ends[1], fd, O_CLOEXEC) == fd;

	fuse_session_process_buf(se, request);
	if (apart) {
		n = read(ends[0], answer, size);
		dup3(kernel, fd, O_CLOEXEC);
	}
	close(ends[0]);
	close(ends[1]);
	close(kernel);
	return n > 0 ? (size_t)n : 0;
}

/* libfuse 3.14 leaves out that lookups and listings of one directory may run at once (FUSE_CAP_PARALLEL_DIROPS), also
 * if it is asked for: the kernel then lets one wait for the other, where no signal ends it. */
static int answer_first(struct fuse_session *se, const struct fuse_buf *request)
{
	const struct fuse_init_in *asked = (const void *)((const char *)request->mem + sizeof(struct fuse_in_header));
	struct {
		struct fuse_out_header header;
		struct fuse_init_out init;
	} answer;
	const size_t n = answer_apart(se, request, &answer, sizeof(answer));

	if (n >= sizeof(answer.header) + offsetof(struct fuse_init_out, max_background) && !answer.header.error)
		answer.init.flags |= asked->flags & FUSE_PARALLEL_DIROPS;
	return !n || write(fuse_session_fd(se), &answer, n) == (ssize_t)n ? 0 : -1;
}

int fs_sessions_begin(struct fs_sessions *sessions, struct fuse_session *first)
{
	int n;

	do
		n = fuse_session_receive_buf(first, &sessions->init);
	while (n == -EINTR && !fuse_session_exited(first));
	if (n <= 0 || answer_first(first, &sessions->init) < 0)
		return -1;
	return fuse_session_exited(first) ? -1 : 0;
}

int fs_session_take(struct fuse_session *se, int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	return fuse_session_mount(se, path);
}

/* A session answers requests once it has answered FUSE_INIT; to the same request all answer the same. The kernel has
 * its answer and refuses another with ENOENT, which libfuse ignores: it means a request that was interrupted. */
struct fuse_session *fs_sessions_add(struct fs_sessions *sessions, int fd)
{
	struct fuse_session *se = session_new(sessions);

	if (!se || fs_session_take(se, fd) < 0) {
		close(fd);
	} else {
		fuse_session_process_buf(se, &sessions->init);
		if (session_keep(sessions, se) == 0)
			return se;
	}
	if (se)
		fuse_session_destroy(se);
	return NULL;
}

/* The kernel asks to interrupt a request at any descriptor, and takes the answer only where it gave that request. A
 * session that does not know the request yet keeps this one, and gives it back when it receives another. */
static bool is_for_all(const struct fuse_buf *request)
{
	const struct fuse_in_header *header = request->mem;

	return header->opcode == FUSE_INTERRUPT;
}

void fs_sessions_process(struct fs_sessions *sessions, struct fuse_session *se, const struct fuse_buf *request)
{
	const struct fs_session *session;

	if (!is_for_all(request)) {
		fuse_session_process_buf(se, request);
		return;
	}
	pthread_mutex_lock(&sessions->lock);
	for (session = sessions->all; session; session = session->next)
		fuse_session_process_buf(session->se, request);
	pthread_mutex_unlock(&sessions->lock);
}

/* The numbers stay taken: a thread that answers late must not find another file under one. That file cannot be written,
 * and to open it takes no right that the process has given up. */
void fs_sessions_close(struct fs_sessions *sessions)
{
	const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const struct fs_session *session;

	if (nothing < 0)
		return; /* the end of the process closes them */
	pthread_mutex_lock(&sessions->lock);
	for (session = sessions->all; session; session = session->next)
		dup3(nothing, fuse_session_fd(session->se), O_CLOEXEC);
	pthread_mutex_unlock(&sessions->lock);
}

void fs_sessions_fini(struct fs_sessions *sessions)
{
	struct fs_session *session;

	while ((session = sessions->all)) {
		sessions->all = session->next;
		fuse_session_destroy(session->se);
		free(session);
	}
	free(sessions->init.mem);
	pthread_mutex_destroy(&sessions->lock);
}
