/* The adapters of a checkpoint, by the names in their tensors' names. */
#ifndef UNS_FILES_ADAPTER_LIST_H
#define UNS_FILES_ADAPTER_LIST_H

#include "files/other_lora.h"

/* One adapter: a range of a tensor's name; "" if the names of the checkpoint contain none. */
struct uns_one_adapter {
	const char *name;
	size_t len;
	bool trained;
	const struct uns_other_lora *other; /* its tensors, if another program than PEFT named them; else NULL */
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

/* Lists the adapters of a catalog whose summary.adapter is not NONE. other: the one that it has if that is OTHER, else
 * NULL. Call uns_adapter_list_fini whatever this returned; names stay the catalog's. Fails only if memory is out. */
int uns_adapter_list(const struct uns_catalog *cat, const struct uns_other_lora *other, struct uns_adapter_list *out,
		     struct uns_err *err);
void uns_adapter_list_fini(struct uns_adapter_list *list);
/* NULL = there is none of this name. One whose name the checkpoint does not contain is PEFT's "default". */
const struct uns_one_adapter *uns_adapter_named(const struct uns_adapter_list *list, const char *name);

/* The adapter's tensors under their names in PEFT's files. One whose name contains no adapter's belongs to all. *out is
 * malloc'd, names are in the arena. Fails only if memory is out. */
int uns_adapter_tensors(const struct uns_catalog *cat, const struct uns_one_adapter *adapter, struct uns_arena *arena,
			struct uns_named_tensor **out, size_t *n, struct uns_err *err);

#endif
