/* The restricted pickle machine: opcodes of protocols 2 to 5 build plain data (wire/value.h).
 *
 *     GLOBAL / STACK_GLOBAL        -> a name
 *     REDUCE / NEWOBJ / NEWOBJ_EX  -> OBJECT { name, args }: tagged, never called
 *     BUILD                        -> state kept beside the object
 *     BINPERSID                    -> OBJECT { UNS_PERSISTENT_ID, tuple }
 *     OrderedDict(), set([..])     -> DICT, SET (they are plain containers)
 *
 * Nothing is imported, called or looked up: a hostile pickle can only be refused (-EBADMSG damaged,
 * -ENOTSUP an opcode of protocol 0/1 or an extension that we do not know).
 * Cost: O(bytes) time; memory is bounded by a constant times the input's size (a memoised value is
 * shared, not copied), so a small file cannot ask for much. Depth of nesting is not recursion here. */
#ifndef UNS_WIRE_PICKLE_H
#define UNS_WIRE_PICKLE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "wire/value.h"

/* Read one pickle from the front of *in, which is advanced behind STOP. */
int uns_pickle_parse(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out,
		     struct uns_err *err);

#endif
