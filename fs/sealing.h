/* Checkpoints are sealed while the mount serves (-o seal=auto): a thread looks for those that have settled since its
 * last look, and reads each once. It reads at most so many bytes a second, and next to nothing while programs read the
 * mount. */
#ifndef FS_SEALING_H
#define FS_SEALING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fs.h"

struct fs;

struct fs_sealing {
	struct fs *fs;
	bool wanted;
	uint64_t bytes_per_s;
	atomic_uint reading;        /* reads of the mount that are being answered */
	_Atomic int64_t last_read_ns; /* monotonic: when the last one ended */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool running, ended; /* ended: under the lock */

	/* The thread's own. */
	uint64_t done_bytes;  /* of the checkpoint that is being read */
	int64_t free_at_ns;   /* monotonic: when the rate allows the next bytes */
	bool has_read;        /* anything, in this look */
	char failure[512];    /* why the look before failed; "" = it did not */
};

void fs_sealing_init(struct fs_sealing *sealing, struct fs *fs, const struct fs_options *o);
void fs_sealing_fini(struct fs_sealing *sealing);

/* Begins the thread, if it is wanted; it inherits the signal mask. */
void fs_sealing_start(struct fs_sealing *sealing);
/* Ends what it is doing, and waits for it. What was read of a checkpoint that is not finished is read again another
 * time. False: it waits for storage, and still does at `until` (monotonic). */
bool fs_sealing_stop(struct fs_sealing *sealing, const struct timespec *until);

/* Around each read of the mount. Any thread. */
void fs_sealing_read_begins(struct fs_sealing *sealing);
void fs_sealing_read_ends(struct fs_sealing *sealing);

#endif
