/* The checkpoints beside one, found by their names: what may tell about the same training. */
#ifndef UNS_FACTS_SIBLINGS_H
#define UNS_FACTS_SIBLINGS_H

#include "io/capture.h"

struct siblings {
	const char *run; /* the directory of all of them; NULL = outside SOURCE */
	bool numbered;   /* this one is checkpoint-OWN */
	unsigned long long own, *number; /* all numbers, descending, OWN among them */
	size_t n;
	struct {
		const char *state; /* its trainer_state.json, which may not exist; NULL = no memory */
		unsigned long long number;
	} near[8]; /* the nearest later ones, then the nearest earlier ones */
	size_t n_near;
};

/* In the arena. Nothing (and 0) where there can be none. capture: may be NULL. */
int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
		  const char *path, struct siblings *out, struct uns_err *err);

/* The checkpoint's own trainer_state.json looks whole: then nothing beside it is asked. Reads three
 * bytes. */
bool siblings_state_whole(const struct uns_root *root, struct uns_arena *arena, const char *path);

#endif
