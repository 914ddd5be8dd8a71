/* What is wrong with tensors of per-rank files, as sentences: one for each file and kind of damage,
 * that counts the tensors it does not name. Private to ranks/. */
#ifndef UNS_RANKS_FINDINGS_H
#define UNS_RANKS_FINDINGS_H

#include "model/catalog.h"

enum uns_rank_damage {
	UNS_RANK_DAMAGED,    /* its bytes or its description cannot be read */
	UNS_RANK_UNKNOWN,    /* they can, in a form that is not known */
	UNS_RANK_UNLIKE,     /* it contradicts itself, or what another rank holds */
	UNS_RANK_ABSENT,     /* other ranks hold it */
	UNS_RANK_OTHER_SAVE, /* what all ranks have alike is not alike */
	UNS_RANK_REPLICA,    /* two copies of the same elements are not equal */
};

struct uns_rank_findings {
	struct uns_catalog *cat;
	struct uns_arena scratch;
	struct uns_rank_finding *first, **tail;
	size_t n; /* sentences */
};

void uns_rank_findings_init(struct uns_rank_findings *f, struct uns_catalog *cat);
void uns_rank_findings_fini(struct uns_rank_findings *f);

/* The sentence goes on behind "path: " and names the tensor; what to do is added by its kind. Fails
 * only when memory is out. */
__attribute__((format(printf, 6, 7))) int
uns_rank_findings_add(struct uns_rank_findings *f, enum uns_rank_damage kind, enum uns_scope scope,
		      int code, const char *path, const char *fmt, ...);

bool uns_rank_findings_has(const struct uns_rank_findings *f, enum uns_rank_damage kind,
			   enum uns_scope scope, const char *path);

/* Into the catalog, in order; after a few sentences only how many more there are. */
int uns_rank_findings_emit(struct uns_rank_findings *f, struct uns_err *err);

#endif
