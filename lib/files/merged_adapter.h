/* Adapters merged into the model that they adapt, as PEFT's merge_and_unload does it, but in fp64 and rounded once. */
#ifndef UNS_FILES_MERGED_ADAPTER_H
#define UNS_FILES_MERGED_ADAPTER_H

#include "files/adapter_list.h"
#include "files/base_model.h"
#include "files/merge_sums.h"
#include "model/tree.h"

struct uns_merge_input {
	const struct uns_catalog *catalog; /* summary.adapter is not NONE */
	const struct uns_other_lora *other; /* if summary.adapter is OTHER, else NULL */
	const struct uns_base_model *base; /* for an adapter alone, and another program's */
	struct uns_span adapter_config;    /* the trained one's, or of all; empty = there is none */
	const struct uns_adapter_choice *adapters; /* those that the user names; n = 0: the trained one */
	const struct uns_span *adapter_configs; /* of each of these its own; empty = it has none */
	const struct uns_tensor *const *tied; /* n_tied weights that are left out */
	size_t n_tied;
	const struct uns_config_info *config;
	enum uns_dtype out; /* of floating tensors; UNS_DTYPE_NONE = that of the base model's */
};

struct uns_merged {
	struct uns_named_tensor *v; /* n, malloc'd: the model's tensors under the base model's names */
	size_t n;
	size_t n_computed, n_replaced; /* how many of them are computed; are the adapter's own */
	const char *formula; /* of those that are computed */
	const char *adapter; /* its name; of several "a:1+b:0.5" */
	bool several;
	const char *peft; /* versions that adapter_config.json records: "0.18.0, 0.21.2"; NULL = none does */
};

/* -ENOTSUP with a sentence if something of the adapter cannot be merged exactly: nothing is merged then. Tensors live
 * in the arena. Free out->v whatever this returned. Pure. */
int uns_merged_adapter_make(const struct uns_merge_input *in, struct uns_arena *arena, struct uns_merged *out,
			    struct uns_err *err);

/* Puts the base model's weights into the sums, under their names there, without anything that is added. -ENOTSUP with a
 * sentence if there is none. Pure. */
int uns_merged_adapter_base(const struct uns_merge_input *in, struct uns_merge_sums *sums, struct uns_err *err);

#endif
