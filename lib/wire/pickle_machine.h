/* The state of the pickle machine, shared by pickle.c (opcodes), pickle_reduce.c (what a few callables mean as data),
 * pickle_record.c (objects as records) and pickle_values.c (values, and memory for them). Private to those. */
#ifndef UNS_WIRE_PICKLE_MACHINE_H
#define UNS_WIRE_PICKLE_MACHINE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "wire/pickle_memo.h"
#include "wire/value.h"

struct uns_pickle_trace;

enum { UNS_PICKLE_MAX_FIELDS = 8, UNS_PICKLE_MAX_SPARE = 2 * UNS_PICKLE_MAX_FIELDS };

/* hash: of the whole text. In a large pickle most texts find another one in their place: the hash shows it without a
 * look at the value, which is no longer in the processor's cache. */
struct uns_pickle_recent_text {
	struct uns_value *v;
	uint64_t hash;
};

/* Values that were made lately, by a hash of what is in them: names, shapes and offsets repeat, and equal ones that
 * cannot change are one value. Four tables of `n` (a power of two), in proportion to the input. */
struct uns_pickle_recent {
	size_t n;
	struct uns_value **ints, **tuples, **sizes; /* malloc'd together */
	struct uns_pickle_recent_text *texts;       /* malloc'd */
};

struct uns_value_stack {
	struct uns_value **v; /* malloc'd; entries past n are NULL or stale */
	size_t n, cap;
};

struct uns_pickle {
	struct uns_span in;
	const uint8_t *start;
	size_t op_at; /* of the current opcode, bytes from start: for messages */
	unsigned arg; /* of the current opcode, from the table of opcodes */
	struct uns_arena *arena;
	size_t used_before, limit_bytes; /* of the arena, the stack, the memo and the marks together */
	size_t shared, limit_shared; /* items reached again through values that are used more than once */
	bool over_limit, done;
	struct uns_err *err;

	struct uns_value_stack stack;
	struct uns_pickle_memo memo;
	size_t n_memo; /* numbers in use: MEMOIZE puts the next one at this number */
	size_t *mark, n_marks, cap_marks;
	struct uns_pickle_trace *trace; /* NULL = not wanted */
	bool *named; /* for each memo number: a site put a name there; NULL without a trace */
	size_t named_cap;
	struct uns_value *none, *boolean[2], *unit;
	struct uns_pickle_recent recent;
	bool records; /* objects become records */
	void *spare[1 +
		    UNS_PICKLE_MAX_SPARE]; /* given back, by size in words; each begins with the next one's address */
};

/* pickle_values.c. Is there room for n things of this size? If not, sets m->over_limit. */
bool uns_pickle_within_limit(struct uns_pickle *m, size_t n, size_t size);
/* Zeroed memory from the arena, or NULL: out of memory or over the limit. */
void *uns_pickle_alloc(struct uns_pickle *m, size_t n, size_t size);
/* Gives back memory that nothing refers to: a later allocation of this size gets it. */
void uns_pickle_spare(struct uns_pickle *m, void *p, size_t bytes);
struct uns_value *uns_pickle_value(struct uns_pickle *m, enum uns_value_kind kind);
struct uns_value *uns_pickle_bytes(struct uns_pickle *m, enum uns_value_kind kind, const void *p, size_t n);
/* A TUPLE of these n items. again: it is one that was made before. NULL = no memory. */
struct uns_value *uns_pickle_tuple(struct uns_pickle *m, struct uns_value **items, size_t n, bool *again);
/* The GLOBAL "outer.inner". */
struct uns_value *uns_pickle_dotted(struct uns_pickle *m, const char *outer, size_t outer_len, const char *inner,
				    size_t inner_len);

/* callable(*args) as data: a plain container if the callable makes one, otherwise an OBJECT. args is
 * a TUPLE. NULL = no memory. */
struct uns_value *uns_pickle_reduce(struct uns_pickle *m, const struct uns_value *callable,
				    const struct uns_value *args);
/* Where the table of recent values has the one of this hash. */
static inline size_t uns_pickle_slot(const struct uns_pickle *m, uint64_t hash)
{
	return (size_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (m->recent.n - 1);
}
struct uns_value *uns_pickle_object(struct uns_pickle *m, const struct uns_value *callable,
				    const struct uns_value *args);

/* pickle_record.c: is the object, once it is given this state, to become a RECORD? If so, record makes it one, and
 * the state must not be used any more. unrecord makes it an OBJECT again. Both return false when out of memory. */
bool uns_pickle_is_recordable(const struct uns_pickle *m, const struct uns_value *object,
			      const struct uns_value *state);
bool uns_pickle_record(struct uns_pickle *m, struct uns_value *object, struct uns_value *state);
bool uns_pickle_unrecord(struct uns_pickle *m, struct uns_value *record);

#endif
