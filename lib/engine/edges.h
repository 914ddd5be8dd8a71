/* A reader that remembers the first and the last bytes of a torch.save item. The item's headers lie
 * at both ends and are parsed in some ten reads; storage is asked twice for them. */
#ifndef UNS_ENGINE_EDGES_H
#define UNS_ENGINE_EDGES_H

#include "base/reader.h"

enum { UNS_EDGE_BYTES = 4096 };

struct uns_edges {
	const struct uns_reader *whole;
	size_t head_len, tail_len; /* bytes held; 0 = not read yet */
	uint8_t head[UNS_EDGE_BYTES], tail[UNS_EDGE_BYTES];
};

/* Fills both, the first bytes first. Nothing else of the item is read. */
int uns_edges_fill(struct uns_edges *edges, struct uns_err *err);

/* `edges` and `whole` must outlive the reader. Not thread safe. */
struct uns_reader uns_reader_of_edges(struct uns_edges *edges, const struct uns_reader *whole);

#endif
