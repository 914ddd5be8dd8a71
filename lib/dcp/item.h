/* Reads the small objects of a DCP directory. An item is a torch.save file at some offset of a .distcp
 * file, and may be compressed. Private to dcp/, megatron/groups.c and megatron/fsdp.c. */
#ifndef UNS_DCP_ITEM_H
#define UNS_DCP_ITEM_H

#include "base/span.h"
#include "model/catalog.h"

enum { UNS_DCP_FILES_OPEN = 4 };

/* Keeps the files that were read last open, each with a window of its bytes: small items follow each other in a file,
 * and those of one rank alternate with those of others. */
struct uns_dcp_reader {
	const struct uns_catalog *cat;
	struct uns_dcp_open_file {
		uint32_t file; /* the file that fd and the bytes belong to; UNS_NONE = no file is open */
		int fd;
		uint8_t *window;
		uint64_t at_bytes;
		size_t len;
		uint64_t last_read; /* n_reads at that time */
	} open[UNS_DCP_FILES_OPEN];
	uint64_t n_reads;
	struct uns_arena windows;
};

void uns_dcp_reader_init(struct uns_dcp_reader *reader, const struct uns_catalog *cat);
void uns_dcp_reader_fini(struct uns_dcp_reader *reader);

struct uns_dcp_item_location {
	uint32_t file;
	uint64_t offset_bytes, length_bytes;
	enum uns_codec codec;
};

/* Reads the item's bytes into the arena, decompressed. Both the stored and the decompressed size may be 64
 * MiB at most. Fails with -ENODATA if the file is missing and with -EBADMSG if it is truncated; both
 * sentences name the file and the sizes. */
int uns_dcp_item_bytes(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		       struct uns_arena *arena, struct uns_span *out, struct uns_err *err);

/* Reads the beginning of the item into the arena, decompressed: 8 KiB, or the whole item if it is shorter.
 * The item may be of any size. Fails as uns_dcp_item_bytes does. */
int uns_dcp_item_head(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		      struct uns_arena *arena, struct uns_span *out, struct uns_err *err);

/* Unpickles the object that an item holds. A tensor with one element is returned as a number. */
int uns_dcp_item_value(struct uns_span bytes, struct uns_arena *arena, const struct uns_value **out,
		       struct uns_err *err);

#endif
