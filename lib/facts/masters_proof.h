/* Whether the names that a rule gave to an optimizer's states (summary.named_by_rule) are right: each fp32 copy,
 * rounded to the weight's dtype, must be the weight, bit for bit. */
#ifndef UNS_FACTS_MASTERS_PROOF_H
#define UNS_FACTS_MASTERS_PROOF_H

#include "base/text.h"
#include "engine/engine.h"

/* What the comparison of a checkpoint's fp32 copies with its weights found. */
struct masters_found {
	struct uns_arena arena; /* zero it before */
	const struct uns_finding *disproof; /* why the states are not to be shown; NULL = the names are proven */
	uint64_t n_parameters, n_elems; /* that were compared, copies of other ranks among them */
};

/* Compares all elements, also those of which several ranks saved a copy, with the pool's threads. Equal parameters
 * prove nothing about each other: what could have changed places unnoticed, in all layers, is a disproof too. Reads all
 * fp32 copies and weights. Fails for reasons of the moment. */
int masters_prove(struct uns_engine *engine, const struct uns_catalog *cat, struct uns_backing *backing,
		  struct masters_found *out, struct uns_err *err);
void masters_found_fini(struct masters_found *found);

/* A proof as bytes for the store, and back: false if the bytes are none. */
void masters_pack(const struct masters_found *found, struct uns_text *out);
bool masters_unpack(struct uns_span in, struct masters_found *out);

#endif
