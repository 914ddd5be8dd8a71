/* adapter_config.json, made for a LoRA that was saved without one. */
#ifndef UNS_FILES_ADAPTER_CONFIG_H
#define UNS_FILES_ADAPTER_CONFIG_H

#include "files/other_lora.h"

/* What does not follow from names and shapes of an adapter's tensors. */
enum uns_adapter_fact {
	UNS_ADAPTER_ALPHA,
	UNS_ADAPTER_ALPHA_PATTERN,
	UNS_ADAPTER_BASE,
	UNS_ADAPTER_RSLORA,
	UNS_N_ADAPTER_FACTS
};

struct uns_adapter_facts {
	struct {
		const char *json; /* NULL = no file records it, and the user has not set it */
		const char *origin;
	} v[UNS_N_ADAPTER_FACTS];
	int64_t expert_ranks; /* between how many Megatron divided the experts; 0 = no file records it */
	const char *run; /* what `unshard meta set` takes, quoted for a shell; NULL = nothing was asked for */
};

/* Its key in adapter_config.json, which is also the fact's. */
const char *uns_adapter_fact_key(enum uns_adapter_fact fact);

struct uns_adapter_config {
	const struct uns_catalog *catalog; /* summary.adapter is not NONE */
	const struct uns_companion *borrowed;
	size_t n_borrowed;
	const struct uns_adapter_facts *facts;
	const struct uns_other_lora *other; /* if summary.adapter is OTHER, else NULL */
};

/* If none of the borrowed files is adapter_config.json: adds one, with a note on where its values are from and what is
 * assumed; or, if not enough is known, the note that PEFT needs it and how to get it. */
int uns_adapter_config_add(const struct uns_adapter_config *in, struct uns_vtree *out, struct uns_err *err);

/* The text that uns_adapter_config_add would add; empty if not enough is known. In the arena. */
int uns_adapter_config_text(const struct uns_adapter_config *in, struct uns_arena *arena, struct uns_span *out,
			    struct uns_err *err);

#endif
