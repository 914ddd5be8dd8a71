/* A thread that does something once a second while a mount serves. */
#ifndef FS_PULSE_H
#define FS_PULSE_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct fs;

struct fs_pulse {
	struct fs *fs;
	void (*beat)(struct fs *fs);
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool running, ended; /* ended: under the lock */
};

/* Begins the thread, which inherits the signal mask. If no thread can begin, nothing is done. */
void fs_pulse_start(struct fs_pulse *pulse, struct fs *fs, void (*beat)(struct fs *fs));
/* Waits for the thread: call it when the connection has ended. False: it waits for storage, and still does at `until`
 * (monotonic). */
bool fs_pulse_stop(struct fs_pulse *pulse, const struct timespec *until);

#endif
