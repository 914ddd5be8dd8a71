/* Memory for zstd's windows: what a decoder must keep of the bytes that it made. A frame's header records how large
 * that is (up to 2 GiB for a few KiB of data), so all decoders of an engine share one budget. */
#ifndef UNS_ENGINE_WINDOWS_H
#define UNS_ENGINE_WINDOWS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct uns_windows {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t held_bytes, max_bytes;
	uint64_t n_came, n_served; /* first come, first served: a large one is not passed by small ones */
};

void uns_windows_init(struct uns_windows *w, uint64_t max_bytes);
void uns_windows_fini(struct uns_windows *w);

/* Count a window; waits while others hold too much, so the caller must hold none. false = larger than the budget. */
bool uns_windows_take(struct uns_windows *w, uint64_t bytes);
void uns_windows_give_back(struct uns_windows *w, uint64_t bytes);

#endif
