/* storage_data of a DCP `.metadata` as a table: (name, offset) -> the file and the range of bytes in it.
 * Private to the parser of DCP metadata. Knows nothing of tensors. */
#ifndef UNS_DCP_STORAGE_H
#define UNS_DCP_STORAGE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "model/box_pool.h"
#include "wire/value.h"

/* Bytes of a name or path. A limit, because a pickle may use one long string many times, and each use is hashed. */
enum { UNS_DCP_MAX_NAME = 4096 };

/* One item: a complete torch.save file, or what `transform` made of one. */
struct uns_dcp_storage {
	const char *path; /* of the file, relative to the directory; checked to stay below it */
	uint64_t offset_bytes, length_bytes; /* of the item in that file, as stored; their sum does not overflow */
	/* Names such as "stream.zstd/1", in the order in which a reader undoes them. */
	const char **transform;
	size_t n_transforms;                 /* almost always 0 */
};

enum { UNS_DCP_RECENT_STRINGS = 256 };

/* Keeps strings in the result's arena, each once. */
struct uns_dcp_strings {
	struct uns_map map;
	/* Pickles have few paths of files, and name each many times by one value. */
	struct {
		const struct uns_value *value;
		const char *kept;
	} recent[UNS_DCP_RECENT_STRINGS];
	size_t turn; /* names are described in about the order in which storage_data has them */
	struct uns_arena *arena;
	bool failed; /* out of memory: a NULL from uns_dcp_string then means nothing for the string */
};

/* Returns the kept copy of v. NULL if v is not a string, contains a NUL, is longer than UNS_DCP_MAX_NAME,
 * or if memory is out. */
const char *uns_dcp_string(struct uns_dcp_strings *strings, const struct uns_value *v);

/* A pointer that goes with a string from uns_dcp_string: NULL until something is put there. */
const void **uns_dcp_string_note(const char *text);

struct uns_dcp_item {
	/* From uns_dcp_string, so that two names are equal if their addresses are. */
	const char *name;
	const struct uns_box *at;       /* its first element, lengths are 0; NULL for items that are not tensors */
	struct uns_dcp_storage storage; /* lives in the result's arena, with the item */
	size_t claim;                   /* 1 + index of the chunk that this item belongs to; 0 = none yet */
};

/* Most names have one item, which goes with the name; those of names that have several are in a table. */
struct uns_dcp_items {
	struct uns_dcp_item **slot; /* open addressing, at most half full; from malloc */
	size_t cap, n_most; /* n_most: how many items there are */
};

/* Parses storage_data; NULL or None gives an empty table. Strings, boxes and items live in strings->arena. */
int uns_dcp_items_parse(const struct uns_value *storage_data, struct uns_dcp_strings *strings,
			struct uns_box_pool *boxes, struct uns_dcp_items *out, struct uns_err *err);
void uns_dcp_items_fini(struct uns_dcp_items *items);

/* Finds an item by its name, a string of the items' strings. lo = NULL: the item without an offset. NULL if there is
 * none. O(1). */
struct uns_dcp_item *uns_dcp_items_find(const struct uns_dcp_items *items, const char *name, const uint64_t *lo,
					size_t n_dims);

#endif
