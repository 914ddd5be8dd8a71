/* The adapters of a checkpoint, by the names in their tensors' names. */
#ifndef UNS_FILES_ADAPTER_LIST_H
#define UNS_FILES_ADAPTER_LIST_H

#include "model/catalog.h"

/* One adapter: a range of a tensor's name; "" if the names of the checkpoint contain none. */
struct uns_one_adapter {
	const char *name;
	size_t len;
	bool trained;
};

/* Those that the user names (-o adapters=), and by what each one's change is multiplied. */
struct uns_adapter_choice {
	const char *const *name; /* n, no two alike, then NULL; NULL if n is 0 */
	const double *times;     /* n */
	size_t n;                /* 0 = the user names none */
};

struct uns_adapter_list {
	struct uns_one_adapter *v; /* n, at least one */
	size_t n, cap;
	size_t chosen; /* the trained one, else the one with PEFT's default name, else the first */
};

/* Lists the adapters of a catalog whose summary.adapter is not NONE. Call uns_adapter_list_fini whatever this returned;
 * names stay the catalog's. Fails only if memory is out. */
int uns_adapter_list(const struct uns_catalog *cat, struct uns_adapter_list *out, struct uns_err *err);
void uns_adapter_list_fini(struct uns_adapter_list *list);
/* NULL = there is none of this name. One whose name the checkpoint does not contain is PEFT's "default". */
const struct uns_one_adapter *uns_adapter_named(const struct uns_adapter_list *list, const char *name);

/* Does the tensor belong to this adapter? One whose name contains no adapter's belongs to all. */
bool uns_adapter_has(const struct uns_one_adapter *adapter, const struct uns_tensor *t);

#endif
