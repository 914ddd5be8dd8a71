/* The same pickle with other names in some places, everything else byte for byte: what is in a file
 * that we can read but could not write again (wrappers of torch.distributed). */
#ifndef UNS_WIRE_PICKLE_RENAME_H
#define UNS_WIRE_PICKLE_RENAME_H

#include "base/text.h"
#include "wire/pickle.h"

/* `pickle` is what `trace` is of. to[i] is the new name ("torch.FloatStorage") of site i, NULL = it
 * stays. Appends to out; nothing that the pickle did not use before is used in it, so that what
 * loads the one loads the other. -ENOTSUP where the pickle is not as Python's protocol 2 pickler
 * writes it. */
int uns_pickle_rename(struct uns_span pickle, const struct uns_pickle_trace *trace,
		      const char *const *to, struct uns_text *out, struct uns_err *err);

#endif
