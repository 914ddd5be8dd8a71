/* How a finding is printed, and returned (unshard.h). */
#ifndef UNS_API_FINDINGS_H
#define UNS_API_FINDINGS_H

#include "api/caller.h"
#include "base/text.h"
#include "model/finding.h"

/* A finding, and the view that found it. */
struct reason {
	const struct uns_finding *finding;
	const char *view; /* the view that found it out; NULL = none did */
	bool serious;     /* keeps something from being served */
};

enum unshard_severity finding_severity_of(enum uns_severity severity);

/* "SENTENCE", "weights: SENTENCE" */
void reason_print(const struct reason *reason, struct uns_text *out);

/* As unshard.h hands it out; returns what the caller's function does. general_advice: where there is no other. */
int finding_visit(const struct reason *reason, const char *path, enum uns_severity severity, bool general_advice,
		  const struct caller *caller);

#endif
