/* Waits for the end of a thread that may wait for storage. */
#ifndef FS_JOIN_H
#define FS_JOIN_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* False: it still runs at `until` (monotonic). */
bool fs_join(pthread_t thread, const struct timespec *until);

#endif
