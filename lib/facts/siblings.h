/* The other checkpoints of the same run, found by their names. Their files may hold facts about the same
 * training. */
#ifndef UNS_FACTS_SIBLINGS_H
#define UNS_FACTS_SIBLINGS_H

#include "io/capture.h"

struct siblings {
	const char *run;                 /* the directory that all of them are in; NULL = it is outside SOURCE */
	bool numbered;                   /* this checkpoint is called checkpoint-OWN */
	unsigned long long own, *number; /* the numbers of all checkpoints of the run, descending, OWN among them */
	size_t n;
	struct {
		const char
			*state; /* the path of its trainer_state.json, which may not exist; NULL = out of memory */
		unsigned long long number;
	} near[8]; /* the nearest later checkpoints, then the nearest earlier ones */
	size_t n_near;
};

/* Finds them; everything is in the arena. Returns 0 and nothing if `path` is in no run. capture may be
 * NULL. */
int siblings_find(const struct uns_root *root, struct uns_capture *capture, struct uns_arena *arena,
		  const char *path, struct siblings *out, struct uns_err *err);

/* A checkpoint's generation must change when a file outside the checkpoint changes that its views use. The
 * two functions below call `add` for each such file that exists, with its stat, and with st = NULL for a
 * name alone. Both fail if something could not be read at this moment. */
typedef void siblings_add(void *ctx, const char *name, const struct uns_stat *st);

/* The config and tokenizer files of the run's directory. */
int siblings_borrowed(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		      siblings_add *add, void *ctx, struct uns_err *err);
/* The files that training_facts.c reads if the checkpoint's own trainer_state.json is not complete. */
int siblings_telling(struct uns_capture *capture, struct uns_arena *arena, const char *path,
		     siblings_add *add, void *ctx, struct uns_err *err);

/* Is the checkpoint's own trainer_state.json complete, by its first and last bytes? Then no file beside
 * the checkpoint is used. Returns 1 or 0, or a negative code if the file could not be read. Reads three
 * bytes. */
int siblings_state_whole(const struct uns_root *root, struct uns_arena *arena, const char *path);

#endif
