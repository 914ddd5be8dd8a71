/* Where the bytes of a virtual file are: for programs that read the shards themselves. */
#ifndef UNS_ENGINE_EXTENTS_H
#define UNS_ENGINE_EXTENTS_H

#include "engine/engine.h"

enum uns_extent_from {
	UNS_EXTENT_FILE,     /* the bytes of a source file at offset_bytes */
	UNS_EXTENT_ZEROS,
	UNS_EXTENT_COMPUTED, /* the mount makes them: headers, casts, what is compressed or lies in another order */
};

struct uns_extent {
	uint64_t at_bytes, len_bytes; /* in the virtual file */
	enum uns_extent_from from;
	uint32_t file; /* FILE: index into the catalog's files */
	uint64_t offset_bytes;
};

/* Visit extents that follow each other and cover the whole file. Neighbours that are one in the source are one extent.
 * A tensor that lies in very many short stretches is one computed extent. Reads the headers of items that are not known
 * yet. Stops with what `visit` returns if that is not 0. */
int uns_layout_extents(struct uns_backing *backing, const struct uns_layout *layout,
		       int (*visit)(void *ctx, const struct uns_extent *extent), void *ctx, struct uns_err *err);

#endif
