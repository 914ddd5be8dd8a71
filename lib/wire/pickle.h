/* The restricted pickle machine: opcodes of protocols 2 to 5 build plain data (wire/value.h).
 *
 *     GLOBAL / STACK_GLOBAL        -> a name
 *     REDUCE / NEWOBJ / NEWOBJ_EX  -> OBJECT { name, args }: tagged, never called
 *     BUILD                        -> state kept beside the object
 *     BINPERSID                    -> OBJECT { UNS_PERSISTENT_ID, tuple }
 *     OrderedDict(), set([..])     -> DICT, SET (they are plain containers)
 *     _codecs.encode(s, 'latin1')  -> BYTES
 *     items given to an OBJECT     -> LIST or DICT with `cls` set: a subclass; its args are dropped
 *     getattr(Class, 'Inner')      -> GLOBAL "module.Class.Inner"
 *
 * Nothing is imported, called or looked up: a hostile pickle can only be refused (-EBADMSG damaged, -ENOTSUP an opcode
 * of protocol 0/1 or an extension that we do not know). Names are kept as spelled ("__builtin__.set" by protocol 2,
 * "builtins.set" later). NEWOBJ_EX with keyword arguments has args (positional tuple, keyword dict). Cost: O(bytes)
 * time; memory is bounded by base/budget.h (a memoised value is shared, not copied), and so is how many items sharing
 * adds to the tree; more is -ENOTSUP. Depth of nesting is not recursion here, but a reader of the result beware: see
 * uns_value_fits. */
#ifndef UNS_WIRE_PICKLE_H
#define UNS_WIRE_PICKLE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "wire/value.h"

/* Read one pickle from the front of *in, which is advanced behind STOP. */
int uns_pickle_parse(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out, struct uns_err *err);

/* The same, for a tree of many objects that takes less memory: an object whose arguments are empty and whose state is
 * a small dict of names is a RECORD, and the names of equal dicts exist once. */
int uns_pickle_parse_records(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out,
			     struct uns_err *err);

/* A site: where a pickle names a class or a function, by GLOBAL or by fetching it from the memo. */
struct uns_pickle_site {
	const struct uns_value *value; /* GLOBAL; no other site has this one */
	size_t at, len;                /* bytes of the pickle: the opcode, and the memo put behind it */
	int64_t memo;                  /* its number there; -1 = it was not put into the memo */
	bool again;      /* out of the memo */
};

struct uns_pickle_trace {
	struct uns_pickle_site *v; /* in the pickle's order; in the arena */
	size_t n, cap;
	bool strange; /* names are not written as Python's protocol 2 pickler does: sites may be missing */
};

/* The same; also lists every site. */
int uns_pickle_parse_traced(struct uns_span *in, struct uns_arena *arena, const struct uns_value **out,
			    struct uns_pickle_trace *trace, struct uns_err *err);

#endif
