/* The other checkpoints of the same run, found by their names. Their files may hold facts about the same
 * training. */
#ifndef UNS_FACTS_SIBLINGS_H
#define UNS_FACTS_SIBLINGS_H

#include "io/seen.h"

struct siblings {
	const char *run;                 /* the directory that all of them are in; NULL = it is outside SOURCE */
	bool numbered;                   /* this checkpoint is called checkpoint-OWN */
	unsigned long long own, *number; /* the numbers of all checkpoints of the run, descending, OWN among them */
	size_t n;
	struct {
		const char *state; /* the path of its trainer_state.json, which may not exist; NULL = out of memory */
		unsigned long long number;
	} near[8]; /* the nearest later checkpoints, then the nearest earlier ones */
	size_t n_near;
};

/* Finds them; everything is in the arena. Returns 0 and nothing if `path` is in no run. capture may be
 * NULL. */
int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena, const char *path,
		  struct siblings *out, struct uns_err *err);

/* Looks at the files that training_facts.c reads beside the checkpoint, if it reads any: if the checkpoint's own
 * trainer_state.json is complete, it does not. Fails if something could not be looked at at this moment. */
int siblings_look(const struct uns_root *root, struct uns_capture *capture, const char *path, struct uns_err *err);

#endif
