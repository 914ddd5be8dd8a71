/* Tied weights that are written once: which may be left out. */
#ifndef UNS_SESSION_TIES_H
#define UNS_SESSION_TIES_H

#include "session/snapshot.h"

/* Fills `out`, which is zeroed. Reads tensors where nothing else proves that they are equal. */
int ties_prove(const struct snapshot *snap, struct ties *out, struct uns_err *err);

#endif
