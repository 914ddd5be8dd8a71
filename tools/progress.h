/* How far a long scan, or a long read, is, on a terminal. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool wanted, shown;
	int64_t next_ms; /* monotonic: not drawn before */
};

void progress_start(struct progress *p);
void progress_step(struct progress *p, size_t directories, size_t checkpoints);
void progress_bytes(struct progress *p, uint64_t done, uint64_t total);  /* read */
void progress_copied(struct progress *p, uint64_t done, uint64_t total); /* written */
void progress_end(struct progress *p);

#endif
