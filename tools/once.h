/* Sentences about this machine that are printed once, not by every command. */
#ifndef TOOLS_ONCE_H
#define TOOLS_ONCE_H

#include <stdbool.h>

/* True at the first call for this sentence on this machine, by this user, since it was started; also if that cannot be
 * remembered. */
bool once(const char *sentence);

#endif
