/* What is wrong with tensors of per-rank files. A damaged file damages many tensors, and often all ranks' files
 * are damaged alike. So there is one finding for each file and kind of damage; it names one tensor and counts the
 * others. Private to ranks/. */
#ifndef UNS_RANKS_FINDINGS_H
#define UNS_RANKS_FINDINGS_H

#include "model/catalog.h"

struct uns_rank_findings {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_rank_finding *first, **tail;
	size_t n; /* findings that will be reported */
};

void uns_rank_findings_init(struct uns_rank_findings *f, struct uns_catalog *cat);
void uns_rank_findings_fini(struct uns_rank_findings *f);

/* Keeps the finding. If there is one of the same kind, file and scope already, counts it there instead, as that
 * finding's argument "more". Returns 0, or fails if memory is out. */
int uns_rank_findings_add(struct uns_rank_findings *f, const struct uns_finding *finding);

/* Is there one of this kind? */
bool uns_rank_findings_has(const struct uns_rank_findings *f, enum uns_finding_id kind, enum uns_scope scope,
			   const char *path);

/* Into the catalog, in order; after the first few only how many more there are. */
int uns_rank_findings_emit(struct uns_rank_findings *f, struct uns_err *err);

#endif
