/* Where the elements of a piece lie in its file. The header of a torch.save item records that,
 * which is read when the piece is first touched, checked against the catalog, and remembered. */
#ifndef UNS_ENGINE_RESOLVE_H
#define UNS_ENGINE_RESOLVE_H

#include "engine/backing.h"
#include "model/layout.h"
#include "wire/torchfile.h"

/* A segment that is being read: items of the segments behind it will be read next. layout NULL = do not look ahead. */
struct uns_reading_segment {
	const struct uns_layout *layout;
	size_t segment;
};

/* The location of a piece that is not compressed. Reads its item's header unless it is known, together
 * with headers that are likely to be needed next. */
int uns_locate(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
	       const struct uns_reading_segment *reading, struct uns_location *out, struct uns_err *err);

/* false when the piece's header was not read yet. */
bool uns_location_known(struct uns_backing *b, const struct uns_piece *piece, struct uns_location *out);
void uns_location_keep(struct uns_backing *b, const struct uns_piece *piece, const struct uns_location *location);

/* Parse the item that fills `r` and check that it is what the catalog has for the piece; the file's
 * reader must outlive *out. */
int uns_item_tensor(const struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		    const struct uns_reader *r, struct uns_arena *arena, struct uns_torch_tensor *out,
		    struct uns_err *err);

/* The same for a piece that lies uncompressed in its file; data_bytes is an offset in the file. */
int uns_item_tensor_at(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		       struct uns_arena *arena, struct uns_torch_tensor *out, struct uns_err *err);

/* The CRC that the item recorded for the storage. 0 where it recorded none, or where the storage holds
 * more than the piece, so that its CRC is not the piece's. */
uint32_t uns_item_crc(const struct uns_tensor *tensor, const struct uns_piece *piece, const struct uns_torch_tensor *t);

#endif
