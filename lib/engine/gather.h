/* Dense bytes of a tensor out of its pieces, or of its sum (model/sum_tensor.h). */
#ifndef UNS_ENGINE_GATHER_H
#define UNS_ENGINE_GATHER_H

#include "engine/resolve.h"

/* Scratch memory that one read may use for stretches or for elements to convert. */
enum { UNS_SCRATCH_BYTES = 1 << 20 };

struct uns_gather {
	struct uns_backing *b;
	const struct uns_tensor *tensor;
	const struct uns_piece *piece;
	size_t n_pieces;
	struct uns_reading_segment reading;
	enum uns_way way; /* by which elements come that lie in a file as they are wanted */
	struct uns_unchecked *unchecked; /* those elements' files are added to these (source_read.h); NULL = they are
					    checked at once */
	bool never_decode; /* fail with UNS_MUST_DECODE instead */
};

/* The pieces that serve a tensor: its own, or those of the one it is an alias of. */
struct uns_gather uns_gather_of(struct uns_backing *b, const struct uns_tensor *tensor);
struct uns_gather uns_gather_of_segment(struct uns_backing *b, const struct uns_layout *layout, size_t segment);

/* Bytes [at, at+len) of the tensor in C order, in its own element type. `at` and len need not be
 * multiples of an element. */
int uns_gather_bytes(const struct uns_gather *g, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err);

/* Bytes [first, end) of a piece's own dense bytes. */
typedef void uns_extent_visit(void *ctx, const struct uns_piece *piece, uint64_t first, uint64_t end);

/* Which bytes of which pieces serve bytes [from, to) of a segment of kind PIECES: visits each piece in the order of the
 * tensor, rounded out to whole elements. Instead of a block, the pieces that it is made of are visited if its beginning
 * is wanted. Reads nothing. */
void uns_segment_extents(struct uns_backing *b, const struct uns_layout *layout, size_t segment, uint64_t from,
			 uint64_t to, uns_extent_visit *visit, void *ctx);

/* The same for bytes [from, to) of the file, of all its segments of that kind. */
void uns_pieces_extents(struct uns_backing *b, const struct uns_layout *layout, uint64_t from, uint64_t to,
			uns_extent_visit *visit, void *ctx);

/* Are the source files of these bytes still those that were opened (uns_backing_check)? For what was made of them
 * earlier. */
int uns_pieces_check(struct uns_backing *b, const struct uns_layout *layout, uint64_t from, uint64_t to,
		     struct uns_err *err);

#endif
