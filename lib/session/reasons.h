/* All that is known to be wrong with one checkpoint, as values; and how a finding is handed out (unshard.h). */
#ifndef UNS_SESSION_REASONS_H
#define UNS_SESSION_REASONS_H

#include "session/caller.h"
#include "session/session.h"

/* The catalog's own findings, then what only views found out; or why the checkpoint cannot be opened. */
struct reasons {
	struct uns_arena arena;
	struct reason {
		const struct uns_finding *finding;
		const char *view; /* the view that found it out; NULL = none did */
		bool serious;     /* keeps something from being served */
	} * v;
	size_t n, cap;
	size_t n_serious; /* of these, and of views that are not shown for one of them */
	/* Something could not be read just now (code != 0), which says nothing about the files. */
	struct uns_err moment;
};

/* Fails only when memory is out. */
int reasons_find(struct unshard *u, struct place *place, struct reasons *out, struct uns_err *err);
void reasons_fini(struct reasons *reasons);
/* "SENTENCE", "weights: SENTENCE" */
void reason_print(const struct reason *reason, struct uns_text *out);

/* Why a snapshot could not be had, as a finding of that moment: to be told, not to be remembered. In the
 * arena; NULL = out of memory. */
const struct uns_finding *reason_of_failure(const struct place *place, const struct uns_err *why,
					    struct uns_arena *arena);
/* A directory that cannot be listed or looked at: who goes through many names it and goes on. In the arena.
 * NULL = out of memory, or all must end: `why` is no fault of the directory. */
const struct uns_finding *reason_of_directory(const char *path, const struct unshard *u,
					      const struct uns_err *why, struct uns_arena *arena);

/* As unshard.h hands it out; returns what the caller's function does. general_advice: where there is no
 * other. */
int finding_visit(const struct reason *reason, const char *path, enum uns_severity severity,
		  bool general_advice, const struct caller *caller);

#endif
