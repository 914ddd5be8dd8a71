/* What one run of unshard_check carries along. Private to check/. */
#ifndef UNS_CHECK_CHECKING_H
#define UNS_CHECK_CHECKING_H

#include "session/reasons.h"

struct checking {
	struct unshard *u;
	struct caller caller;
	bool deep;
	struct unshard_check_counts counts;
	size_t n_dirs;
	const char *path; /* of the checkpoint or directory being looked at */
};

/* Count a reason and hand it to the visitor; returns what that returned. */
int checking_hand_over(struct checking *c, const struct reason *reason, enum uns_severity severity, bool general_advice);
/* Count a finding about what is being looked at and hand it to the visitor; returns what that returned. */
int checking_found(struct checking *c, const struct uns_finding *f);
int checking_found_as(struct checking *c, const struct uns_finding *f, enum uns_severity severity);
/* How the checkpoint is called in sentences: its own name, for what is around it is in `path`. */
const char *checking_name(const struct checking *c);

/* -- check_deep.c -- */

/* Everything that the checkpoint's bytes tell. */
int check_deep(struct checking *c, struct snapshot *snap, struct uns_err *err);

#endif
