/* The checkpoints beside one, found by their names: what may tell about the same training. */
#ifndef UNS_FACTS_SIBLINGS_H
#define UNS_FACTS_SIBLINGS_H

#include "io/capture.h"

struct siblings {
	const char *run;                 /* the directory of all of them; NULL = outside SOURCE */
	bool numbered;                   /* this one is checkpoint-OWN */
	unsigned long long own, *number; /* all numbers, descending, OWN among them */
	size_t n;
	struct {
		const char
			*state; /* its trainer_state.json, which may not exist; NULL = no memory */
		unsigned long long number;
	} near[8]; /* the nearest later ones, then the nearest earlier ones */
	size_t n_near;
};

/* In the arena. Nothing (and 0) where there can be none. capture: may be NULL. */
int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
		  const char *path, struct siblings *out, struct uns_err *err);

/* Both fail where something could not be looked at now. What a checkpoint's generation has to follow besides its own files. `add` is called for each file that is
 * there, and with st = NULL for a mere name. */
typedef void siblings_add(void *ctx, const char *name, const struct uns_stat *st);

/* Config and tokenizer of the run directory. */
int siblings_borrowed(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		      siblings_add *add, void *ctx, struct uns_err *err);
/* What tells about its training, where its own state does not. */
int siblings_telling(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		     siblings_add *add, void *ctx, struct uns_err *err);

/* Does the checkpoint's own trainer_state.json look whole? Then nothing beside it is asked. Reads three
 * bytes. Negative when they could not be read. */
int siblings_state_whole(const struct uns_root *root, struct uns_arena *arena, const char *path);

#endif
