/* Where exactly a piece's elements lie: read from its container on first touch, checked against the
 * catalog, and remembered. Private to lib/engine. */
#ifndef UNS_ENGINE_RESOLVE_H
#define UNS_ENGINE_RESOLVE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "model/layout.h"
#include "wire/torchfile.h"

struct uns_backing;

struct uns_spot {
	bool dense;          /* C order without gaps from data_bytes on */
	uint32_t crc32;      /* of exactly the piece's bytes, as its container recorded it; 0 = not */
	uint64_t data_bytes; /* offset of the first element: in the file, or in the decompressed item */
};

/* One per piece of the catalog, zero-initialised. */
struct uns_place {
	_Atomic unsigned state; /* UNS_PLACE_* */
	struct uns_spot spot;   /* written by the thread that claimed it; constant once READY */
};
enum { UNS_PLACE_NEW, UNS_PLACE_CLAIMED, UNS_PLACE_READY };

/* A place in a layout, to look ahead from; layout NULL = do not. */
struct uns_ahead {
	const struct uns_layout *layout;
	size_t segment;
};

/* The spot of a piece that is not compressed. Resolves what is likely to be read next along with it. */
int uns_spot_find(struct uns_backing *b, const struct uns_tensor *tensor,
		  const struct uns_piece *piece, const struct uns_ahead *ahead,
		  struct uns_spot *out, struct uns_err *err);

/* true when the spot of this piece is known already. */
bool uns_spot_known(struct uns_backing *b, const struct uns_piece *piece, struct uns_spot *out);
void uns_spot_publish(struct uns_backing *b, const struct uns_piece *piece,
		      const struct uns_spot *spot);

/* Parse the item that fills `r` and check that it is what the catalog says of the piece; the file's
 * reader must outlive *out. */
int uns_item_tensor(const struct uns_backing *b, const struct uns_tensor *tensor,
		    const struct uns_piece *piece, const struct uns_reader *r,
		    struct uns_arena *arena, struct uns_torch_tensor *out, struct uns_err *err);

/* The same for a piece that lies uncompressed in its file; data_bytes is an offset in the file. */
int uns_item_tensor_at(struct uns_backing *b, const struct uns_tensor *tensor,
		       const struct uns_piece *piece, struct uns_arena *arena,
		       struct uns_torch_tensor *out, struct uns_err *err);

/* The CRC that the item recorded for the storage; 0 where it did not, or where the tensor does not fill
 * the storage: then it does not speak of the tensor. */
uint32_t uns_item_crc(const struct uns_tensor *tensor, const struct uns_torch_tensor *t);

#endif
