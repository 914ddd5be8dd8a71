/* What facts and files of a run record of its adapter, besides an adapter_config.json. */
#ifndef UNS_FACTS_ADAPTER_FACTS_H
#define UNS_FACTS_ADAPTER_FACTS_H

#include "files/adapter_config.h"
#include "io/seen.h"
#include "store/store_link.h"

struct adapter_facts_input {
	const struct uns_root *root;
	const char *path; /* the checkpoint's, below root */
	struct store_link *store;
	bool has_facts; /* the store had facts when the checkpoint was examined */
	struct uns_capture *capture;
	struct uns_arena *arena; /* for what is found */
};

/* Both add what `out` does not have yet. A file that is absent or damaged adds nothing; these fail only if something
 * cannot be read at this moment. */
int adapter_facts_of_store(const struct adapter_facts_input *in, struct uns_adapter_facts *out, struct uns_err *err);
/* dir: one that a trainer may have left its arguments in, below root. */
int adapter_facts_of_dir(const struct adapter_facts_input *in, const struct uns_root *root, const char *dir,
			 struct uns_adapter_facts *out, struct uns_err *err);

#endif
