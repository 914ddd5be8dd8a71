/* Reading the small objects of a DCP directory: one item = one torch.save zip at a place in a .distcp
 * file, perhaps compressed. Private to dcp/. */
#ifndef UNS_DCP_ITEM_H
#define UNS_DCP_ITEM_H

#include "base/span.h"
#include "model/catalog.h"

/* Keeps the last file open and a window of its bytes: small items lie side by side. */
struct uns_dcp_reader {
	const struct uns_catalog *cat;
	uint32_t file; /* whose descriptor and bytes these are; UNS_NONE */
	int fd;
	uint8_t *window;
	uint64_t at_bytes;
	size_t len;
};

void uns_dcp_reader_init(struct uns_dcp_reader *reader, const struct uns_catalog *cat);
void uns_dcp_reader_fini(struct uns_dcp_reader *reader);

struct uns_dcp_item_location {
	uint32_t file;
	uint64_t offset_bytes, length_bytes;
	enum uns_codec codec;
};

/* The item's bytes, decompressed, in the arena. At most 64 MiB, on disk and decompressed.
 * -ENODATA for a missing file, -EBADMSG for one that is cut, both naming file and sizes. */
int uns_dcp_item_bytes(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		       struct uns_arena *arena, struct uns_span *out, struct uns_err *err);

/* The item's first bytes, decompressed, in the arena: 8 KiB, or all of it. The same errors; no bound on the item. */
int uns_dcp_item_head(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		      struct uns_arena *arena, struct uns_span *out, struct uns_err *err);

/* The object an item holds. A tensor of one number is given as that number. */
int uns_dcp_item_value(struct uns_span bytes, struct uns_arena *arena,
		       const struct uns_value **out, struct uns_err *err);

#endif
