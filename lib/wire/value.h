/* Plain data as a pickle, a JSON file or a checkpoint holds it: trees in an arena, immutable once
 * built. Nothing here can run anything.
 *
 * Pickles share: a value may be reached in several ways, and a hostile (or merely odd) one may hold
 * itself. Call uns_value_fits before a recursion over a whole value. */
#ifndef UNS_WIRE_VALUE_H
#define UNS_WIRE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum __attribute__((packed)) uns_value_kind {
	UNS_VALUE_NONE,
	UNS_VALUE_BOOL,
	UNS_VALUE_INT,    /* fits in int64_t */
	UNS_VALUE_BIGINT, /* little-endian two's complement */
	UNS_VALUE_FLOAT,
	UNS_VALUE_STR, /* UTF-8; NUL-terminated, may hold NULs: use n */
	UNS_VALUE_BYTES,
	UNS_VALUE_LIST,
	UNS_VALUE_TUPLE,
	UNS_VALUE_SET,
	UNS_VALUE_DICT,   /* insertion order kept; an OrderedDict is a dict with `cls` set */
	UNS_VALUE_GLOBAL, /* a class or function by name: "torch.float32" in `cls` */
	UNS_VALUE_OBJECT, /* cls(*args) with state, whatever cls is: an opaque tag, never executed */
	UNS_VALUE_TENSOR, /* in what we emit only: an index into a table of tensors (pickle_emit.h) */
	UNS_VALUE_RECORD, /* of uns_pickle_parse_records only: an OBJECT cls() with fields */
};

/* 32 bytes: what is read of a large checkpoint's metadata is mostly these. */
struct uns_value {
	enum uns_value_kind kind;
	bool grown : 1, named : 1, constant : 1, fetched : 1; /* these five are the pickle machine's own */
	uint16_t uses;
	uint32_t n; /* of `bytes`, `item` or `pair` */
	union {
		bool b;
		int64_t i;
		double f;
		const char *bytes; /* STR, BYTES, BIGINT */
		const struct uns_value *
			*item; /* LIST, TUPLE, SET; of a DICT its keys and values by turns; of a RECORD its fields */
		struct uns_pair *pair; /* DICT */
		struct { /* OBJECT */
			const struct uns_value *args; /* TUPLE; NULL for a bare persistent id */
		} object;
		size_t tensor;
	};
	const char *cls; /* GLOBAL, OBJECT, RECORD, subclass of LIST or DICT: "module.name"; else NULL */
	union {
		const struct uns_value *state; /* what BUILD gave; NULL = none */
		const struct uns_value *names; /* RECORD: a TUPLE of STR, as many as fields */
	};
};

struct uns_pair {
	const struct uns_value *key, *value;
};

/* The class name of a persistent id (torch: args = ('storage', class, key, location, numel)). */
#define UNS_PERSISTENT_ID "(persistent id)"

/* Lookups return NULL / false when the shape is not as asked; v may be NULL. Borrowed results. */
/* O(n); of equal keys the last counts, as in Python. */
const struct uns_value *uns_value_get(const struct uns_value *dict, const char *key);
const struct uns_value *uns_value_get_number(const struct uns_value *dict, uint64_t key);
const struct uns_value *uns_value_at(const struct uns_value *seq, size_t i);
/* How many `item` has: of a DICT both keys and values; 0 for a value without items. */
size_t uns_value_n_items(const struct uns_value *v);
/* A field of a RECORD, or of an object's state, which is a dict, or (dict or None, dict of slots). */
const struct uns_value *uns_value_field(const struct uns_value *object, const char *name);
bool uns_value_int(const struct uns_value *v, int64_t *out);   /* INT or BOOL */
bool uns_value_u64(const struct uns_value *v, uint64_t *out);  /* INT >= 0 */
bool uns_value_float(const struct uns_value *v, double *out);  /* FLOAT or INT */
const char *uns_value_str(const struct uns_value *v);          /* STR without inner NULs */
bool uns_value_is(const struct uns_value *v, const char *cls); /* v->cls is cls */
/* true if v, written out as a tree, has at most max_nodes values and max_depth levels, so that
 * recursion over it is safe. false for cycles. O(max_nodes). */
bool uns_value_fits(const struct uns_value *v, size_t max_nodes, unsigned max_depth);
/* "name.key": what item i of a dict or sequence called `name` is called; key NULL = of a sequence: "name.3". In the
 * arena; NULL = out of memory. */
char *uns_value_child_name(struct uns_arena *arena, const char *name, const struct uns_value *key, size_t i);
/* torch.Size or a tuple/list of non-negative ints -> numbers; false if not, or more than cap. */
bool uns_value_dims(const struct uns_value *v, uint64_t *dims, size_t cap, size_t *n);

#endif
