/* A checkpoint beside its seal, if it has one. */
#ifndef UNS_SESSION_SEALED_H
#define UNS_SESSION_SEALED_H

#include "model/catalog.h"
#include "seal/compare.h"
#include "seal/place.h"

/* What is wrong by the seal, from a quick look (seal/compare.h). A seal that cannot be used is a finding too, which
 * keeps nothing from being shown; without a seal there is none. *is_sealed (may be NULL): there is one that can be
 * used. */
int sealed_compare(const struct uns_seal_place *place, const struct uns_seal_look *look, uns_seal_found *found,
		   void *ctx, bool *is_sealed, struct uns_err *err);
/* The same, added to the catalog: in front of its other findings, which it may explain. Of a file that the
 * seal disproves, what else was found in it is left out. */
int sealed_compare_catalog(const struct uns_seal_place *place, const struct uns_seal_look *look,
			   struct uns_catalog *cat, bool *is_sealed, struct uns_err *err);

#endif
