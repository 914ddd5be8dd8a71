/* What a training that resumes from one view of one checkpoint would miss. */
#ifndef UNS_SESSION_RESUMES_H
#define UNS_SESSION_RESUMES_H

#include "files/resume_reads.h"
#include "session/session.h"

/* Is it a view that a training resumes from? */
bool resumes_is_view(const struct uns_view *view);

/* What a trainer that resumes from a view reads, and whether it is there (files/resume_reads.h). */
struct resume {
	struct uns_resume_case of;
	const struct uns_resume_read *v; /* in the arena */
	size_t n; /* 0: of a view that no training resumes from */
};

/* `number` is the view's parameter `text` as a number. Fails if a file about the training could not be read at this
 * moment. */
int resumes_read(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		 const char *text, uint64_t number, struct uns_arena *arena, struct resume *out, struct uns_err *err);

/* Adds a finding RESUME_MISSES for each effect that absent files have, in the arena. leave_assumed: without values of
 * trainer_state.json that are assumed, which show_notes reports too. *known: whether unshard knows what the trainer
 * reads. */
int resumes_judge(const struct resume *resume, const struct dir_record *record, bool leave_assumed,
		  struct uns_arena *arena, struct uns_findings *out, bool *known, struct uns_err *err);

#endif
