/* Renames classes in a pickle and keeps everything else byte for byte: for files that hold objects
 * which we can read but could not write again (wrappers of torch.distributed). */
#ifndef UNS_WIRE_PICKLE_RENAME_H
#define UNS_WIRE_PICKLE_RENAME_H

#include "base/text.h"
#include "wire/pickle.h"

/* `trace` lists the sites of `pickle`. to[i] is the new name ("torch.FloatStorage") of site i, NULL = it stays. Appends
 * to out. Uses no opcode that the pickle did not use before, so that every loader of the old one loads the new one.
 * -ENOTSUP if the pickle is not as Python's protocol 2 pickler writes it. */
int uns_pickle_rename(struct uns_span pickle, const struct uns_pickle_trace *trace, const char *const *to,
		      struct uns_text *out, struct uns_err *err);

#endif
