/* The program that waits for an answer, and whether a signal is to end it. */
#ifndef FS_ASKER_H
#define FS_ASKER_H

#include <stdbool.h>
#include <sys/types.h>

/* Thread `tid` has a signal that ends it, or that a person sends to end it (SIGINT, SIGTERM, SIGQUIT, SIGHUP), also one
 * that it handles. Others (a child that ended, a timer, what Go's threads send each other) interrupt nothing: hardly a
 * program expects EINTR of stat. Of a thread that cannot be seen (another PID namespace) it is `unknown`. */
bool fs_asker_ends(pid_t tid, bool unknown);

#endif
