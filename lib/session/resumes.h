/* What a training that resumes from one view of one checkpoint would miss. */
#ifndef UNS_SESSION_RESUMES_H
#define UNS_SESSION_RESUMES_H

#include "session/session.h"

/* Is it a view that a training resumes from? */
bool resumes_is_view(const struct uns_view *view);

/* Adds a finding RESUME_MISSES for each effect that absent files have (files/resume_reads.h), in the arena. `number` is
 * the view's parameter `text` as a number. leave_assumed: without values of trainer_state.json that are assumed,
 * which show_notes reports too. *known: whether unshard knows what the trainer reads. Fails if a file
 * about the training could not be read at this moment. */
int resumes_judge(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		  const char *text, uint64_t number, bool leave_assumed, struct uns_arena *arena,
		  struct uns_findings *out, bool *known, struct uns_err *err);

#endif
