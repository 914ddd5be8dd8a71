/* What is wrong with tensors of per-rank files: a file that is damaged is damaged in many tensors, and all ranks'
 * files may be in the same way. One finding for each file and kind of damage, that counts the tensors it does
 * not name. Private to ranks/. */
#ifndef UNS_RANKS_FINDINGS_H
#define UNS_RANKS_FINDINGS_H

#include "model/catalog.h"

struct uns_rank_findings {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_rank_finding *first, **tail;
	size_t n; /* of those that will be told */
};

void uns_rank_findings_init(struct uns_rank_findings *f, struct uns_catalog *cat);
void uns_rank_findings_fini(struct uns_rank_findings *f);

/* Kept, or counted with the first of its kind, file and scope: as the argument "more" of that one. Fails only
 * when memory is out. */
int uns_rank_findings_add(struct uns_rank_findings *f, const struct uns_finding *finding);

/* Is there one of this kind? */
bool uns_rank_findings_has(const struct uns_rank_findings *f, enum uns_finding_id kind,
			   enum uns_scope scope, const char *path);

/* Into the catalog, in order; after the first few only how many more there are. */
int uns_rank_findings_emit(struct uns_rank_findings *f, struct uns_err *err);

#endif
