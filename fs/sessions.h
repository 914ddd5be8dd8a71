/* The sessions of libfuse that share one connection: each reads requests at a descriptor of its own, and answers them
 * there, because the kernel takes an answer only where it gave the request. All have the mount's options and its struct
 * fs. Any number of threads may use one of them, and then wait for each other. */
#ifndef FS_SESSIONS_H
#define FS_SESSIONS_H

#include <pthread.h>

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

struct fs;
struct fs_session;

struct fs_sessions {
	struct fs *fs;
	const char *opts;
	struct fuse_buf init; /* the kernel's first request, FUSE_INIT */
	pthread_mutex_t lock;
	struct fs_session *all; /* under the lock; the first one made is the last */
};

void fs_sessions_init(struct fs_sessions *sessions, struct fs *fs);

/* Makes the first one, with mount options "a,b=c", which must live as long as the sessions. The caller gives it a
 * descriptor: fuse_session_mount, or fs_session_take. NULL: why is on stderr. */
struct fuse_session *fs_sessions_first(struct fs_sessions *sessions, const char *opts);

/* `se` reads and answers at `fd`, and closes it in the end. 0, or -1 and why is on stderr. */
int fs_session_take(struct fuse_session *se, int fd);

/* Answers the kernel's first request, after which the mount is live. 0, or -1: the mount ended before. */
int fs_sessions_begin(struct fs_sessions *sessions, struct fuse_session *first);

/* One more, once they have begun, at `fd` of the same connection. Any thread. NULL = there is none, and `fd` is closed.
 */
struct fuse_session *fs_sessions_add(struct fs_sessions *sessions, int fd);

/* Answers a request that `se` received. Any thread. */
void fs_sessions_process(struct fs_sessions *sessions, struct fuse_session *se, const struct fuse_buf *request);

/* Puts an empty file in the place of their descriptors while threads may still use them: the connection ends, and the
 * process has to. */
void fs_sessions_close(struct fs_sessions *sessions);
/* Destroys all, and so closes their descriptors. No thread may use one. */
void fs_sessions_fini(struct fs_sessions *sessions);

#endif
