/* The moment between two tries at what other programs have. */
#ifndef UNS_STORE_MOMENT_H
#define UNS_STORE_MOMENT_H

#include <stdbool.h>

/* Before try n + 1: not as long for each program, because those that failed together would collide again. false: a
 * signal's handler ran. */
bool moment_wait(unsigned n);

#endif
