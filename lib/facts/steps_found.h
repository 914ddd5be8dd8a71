/* What the comparison of a checkpoint's steps found (facts/steps.h). */
#ifndef UNS_FACTS_STEPS_FOUND_H
#define UNS_FACTS_STEPS_FOUND_H

#include "model/finding.h"

struct steps_found {
	struct uns_arena arena; /* zero it before */
	struct uns_findings v;
	const struct uns_finding *disproof; /* the first problem: the optimizer is not that of this save; NULL = none */
};

#endif
