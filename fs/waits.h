/* Requests whose answers come from SOURCE, which may not answer: a server that is away. Each is run by the thread that
 * received it, and answered with EINTR when a signal is to end the program that asks; the look continues, and the
 * session keeps its result. So many threads run requests on one file system of SOURCE at a time: more requests on that
 * one wait here without a thread, and those on others are answered. */
#ifndef FS_WAITS_H
#define FS_WAITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <time.h>

#include "connection.h"
#include "handles.h"
#include "nodes.h"

struct fs_wait {
	TAILQ_ENTRY(fs_wait) next;
	struct fs *fs;
	fuse_req_t req; /* until it is answered: ask by fs_wait_take */
	void (*work)(struct fs_wait *wait);
	/* Answers it with what was known before, once it has taken long; NULL = with nothing. */
	void (*late)(fuse_req_t req, struct fs *fs);
	struct fs_node *node;     /* held */
	struct fs_handle *handle; /* held; NULL = none */
	struct fuse_file_info fi;
	size_t size;
	off_t off;
	bool plus;               /* of a directory's entries */
	bool of_node;            /* the name is one of the node's attributes, not of an entry */
	bool alone; /* while another of the same work, node and name runs, it does not: that one waits for the same */
	uint64_t device; /* the file system of SOURCE that it may wait for; 0 = none */
	/* Under the lock. */
	bool running, answered;
	int64_t began_ns; /* monotonic: when it was received */
	char name[];
};

TAILQ_HEAD(fs_wait_list, fs_wait);

struct fs_waits {
	pthread_mutex_t lock; /* and what follows */
	pthread_cond_t changed;
	struct fs_wait_list all; /* in the order in which they came */
	size_t n;
	int64_t asked_ns; /* when the last one came */
	unsigned most; /* threads that run requests on one file system */
	bool has_watch, asleep, ended;
	pthread_t watch;
};

void fs_waits_init(struct fs_waits *waits, unsigned most);
/* None runs any more; those that were given up are freed. */
void fs_waits_fini(struct fs_waits *waits);

/* Begins the thread that looks after those that wait, which inherits the signal mask. Without it (no thread can begin)
 * no request is interrupted. */
void fs_waits_start(struct fs_waits *waits);
/* Waits for the thread. False: it closes a file of storage that does not answer, and still does at `until` (monotonic).
 */
bool fs_waits_stop(struct fs_waits *waits, const struct timespec *until);

/* Answers the request: now, or when there is room among those that wait for the same storage. `asked` is copied; its
 * node and its handle are held until it has run. `name`: what it asks for in the directory, "" = all of it; NULL = it
 * asks for the node itself. */
void fs_answer(const struct fs_wait *asked, const char *name);

/* When the last request came (monotonic), if none is in progress and none came since `quiet_ns` ago; else 0. */
int64_t fs_waits_asked_ns(struct fs_waits *waits, int64_t quiet_ns);

/* For `work`: the request, to be answered by the caller; NULL = it was answered. */
fuse_req_t fs_wait_take(struct fs_wait *wait);
/* It was answered: the work may end. */
bool fs_wait_is_over(struct fs_wait *wait);

/* Answers all that wait, as the mount has ended. Never waits: it frees nothing, because to close a file of SOURCE may
 * take as long as storage does not answer. */
void fs_waits_give_up(struct fs_waits *waits);

#endif
