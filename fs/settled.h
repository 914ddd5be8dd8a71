/* Files that were opened while their checkpoint was young. A write may have been going on then that changes no time any
 * more, so what the kernel keeps of them may be old. When the checkpoint has settled, or changed, a thread has the
 * kernel drop these pages, also those that a program has mapped: the next access reads them again, through the file as
 * it was opened. Later opens are of another inode. */
#ifndef FS_SETTLED_H
#define FS_SETTLED_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct fs;

struct fs_settled {
	struct fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool running, ended; /* ended: under the lock */
};

/* Begins the thread, which inherits the signal mask. Without it (no thread can begin) pages of such files stay as long
 * as the files are open. */
void fs_settled_start(struct fs_settled *settled, struct fs *fs);
/* Waits for the thread: call it when the connection has ended. False: it waits for storage, and still does at `until`
 * (monotonic). */
bool fs_settled_stop(struct fs_settled *settled, const struct timespec *until);

#endif
