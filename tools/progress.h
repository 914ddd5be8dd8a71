/* How far a long scan, or a long read or write, is, on a terminal. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "unshard.h"

struct progress {
	bool wanted, shown;
	int64_t next_ms; /* monotonic: not drawn before */
	enum unshard_phase phase;
	int64_t since_ms; /* when the phase began: at the step before its first */
	int64_t last_ms;  /* the last step, or the start */
};

void progress_start(struct progress *p);
void progress_step(struct progress *p, const struct unshard_progress *now);
void progress_end(struct progress *p);

#endif
