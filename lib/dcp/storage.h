/* storage_data of a DCP `.metadata` as a table: (name, offset) -> where the bytes lie. Private to the
 * DCP metadata parser. Knows nothing of tensors. */
#ifndef UNS_DCP_STORAGE_H
#define UNS_DCP_STORAGE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "wire/dtype.h"
#include "wire/value.h"

enum { UNS_DCP_MAX_NAME = 4096 }; /* bytes of a name or path; bounds the time of hashing shared ones */

/* One item: a complete torch.save zip, or, with transforms, what they made of one. */
struct uns_dcp_storage {
	const char *path; /* of the file, relative to the directory; checked: stays below it */
	uint64_t offset_bytes, length_bytes; /* in that file, as stored; the sum does not overflow */
	const char **transform;              /* "stream.zstd/1", in the order to undo them in */
	size_t n_transforms;                 /* almost always 0 */
};

/* Copies of strings in the result's arena, each kept once. */
struct uns_dcp_strings {
	struct uns_map map;
	struct uns_arena *arena;
	bool failed; /* out of memory: what was made of a NULL is no finding */
};

/* NULL when v is not a string, holds NULs, is longer than UNS_DCP_MAX_NAME, or memory is out. */
const char *uns_dcp_string(struct uns_dcp_strings *strings, const struct uns_value *v);

struct uns_dcp_item {
	const char *name;               /* from uns_dcp_string: compared by address */
	bool has_offset;                /* false for items that are not tensors */
	size_t n_dims;
	uint64_t lo[UNS_MAX_DIMS];
	struct uns_dcp_storage storage; /* in the result's arena with the item */
	size_t claim;                   /* 1 + index of the chunk that has it; 0 = none has */
};

struct uns_dcp_items {
	struct uns_dcp_item **slot; /* open addressing, at most half full; malloc'd */
	size_t cap;
};

/* storage_data may be NULL or None: an empty table. Its strings and items live in strings->arena. */
int uns_dcp_items_parse(const struct uns_value *storage_data, struct uns_dcp_strings *strings,
			struct uns_dcp_items *out, struct uns_err *err);
void uns_dcp_items_fini(struct uns_dcp_items *items);

/* lo = NULL: the item without an offset. NULL when there is none. O(1). */
struct uns_dcp_item *uns_dcp_items_find(const struct uns_dcp_items *items, const char *name,
					const uint64_t *lo, size_t n_dims);

#endif
