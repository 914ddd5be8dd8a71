/* A virtual file: sorted segments that cover [0, size) exactly. A segment has three independent parts: its place in the
 * file, its source, and the element type that it is served as. The tensor's pieces have the rest (file, codec, strides,
 * source type), so resharding, casting and decompressing combine without special cases. */
#ifndef UNS_MODEL_LAYOUT_H
#define UNS_MODEL_LAYOUT_H

#include "model/catalog.h"

enum uns_from {
	UNS_FROM_LITERAL,
	UNS_FROM_ZEROS,
	UNS_FROM_PIECES,
	UNS_FROM_CRC32, /* 4 bytes, little endian: the CRC of all of `tensor` served as `out`, if it is known,
			 * else 0 (see uns_backing_crc) */
};

struct uns_segment {
	uint64_t at_bytes, len_bytes; /* in the virtual file */
	enum uns_from from;
	const uint8_t *literal; /* LITERAL */
	const struct uns_tensor *tensor; /* PIECES: elements [first_elem, ...) of this tensor in C order, */
	uint64_t first_elem; /* as many as fill len_bytes */
	enum uns_dtype out; /* served as this type */
};

struct uns_layout {
	const struct uns_catalog *catalog; /* whose tensors, pieces and files the segments name */
	const struct uns_segment *segment;
	size_t n;
	uint64_t size_bytes;
};

/* Builder: append in order, then build. Zero-length segments are dropped. */
struct uns_layout_builder {
	struct uns_arena *arena; /* receives the result; literals are borrowed, not copied */
	struct uns_segment *segment;
	size_t n, cap;
	uint64_t at_bytes;
	bool failed;
	const char *why; /* of the first failure; NULL = out of memory */
};

/* Makes room for n segments at once: adding them then moves none. */
void uns_layout_reserve(struct uns_layout_builder *b, size_t n);
void uns_layout_literal(struct uns_layout_builder *b, const void *bytes, size_t len);
void uns_layout_zeros(struct uns_layout_builder *b, uint64_t len_bytes);
/* n_elems elements of `tensor` from first_elem; out may be the tensor's own dtype. */
void uns_layout_tensor(struct uns_layout_builder *b, const struct uns_tensor *tensor, uint64_t first_elem,
		       uint64_t n_elems, enum uns_dtype out);
/* The element of the sliced tensor with which this stretch of a slice begins. */
uint64_t uns_slice_stretch_begin(const struct uns_slice *slice, uint64_t stretch);
/* n_elems elements of a slice of `of`, from the slice's first_elem: all of them lie inside the slice. */
void uns_layout_slice(struct uns_layout_builder *b, const struct uns_tensor *of, const struct uns_slice *slice,
		      uint64_t first_elem, uint64_t n_elems, enum uns_dtype out);
/* The 4 bytes of the CRC-32 of all of `tensor` served as `out`, as zip records hold it; 0 for a slice of another. */
void uns_layout_crc32(struct uns_layout_builder *b, const struct uns_tensor *tensor, enum uns_dtype out);
/* Bytes of a source file. The pseudo tensor (U8, one raw piece) lives in the builder's arena. */
void uns_layout_file_part(struct uns_layout_builder *b, const struct uns_catalog *cat, uint32_t file,
			  uint64_t offset_bytes, uint64_t len_bytes);
int uns_layout_build(struct uns_layout_builder *b, const struct uns_catalog *cat, struct uns_layout *out,
		     struct uns_err *err);

/* A source file as it is, in the same way. */
int uns_layout_of_file(struct uns_arena *arena, const struct uns_catalog *cat, uint32_t file, struct uns_layout *out,
		       struct uns_err *err);

/* The pieces of a segment of kind PIECES. Use this, not tensor->first_piece: an alias has those of
 * the tensor that it names, and a tensor that is in no catalog has its own. */
const struct uns_piece *uns_segment_pieces(const struct uns_layout *layout, const struct uns_segment *segment,
					   size_t *n);

/* Index of the segment that holds byte `at`; layout->n at or past the end. O(log n). */
size_t uns_layout_find(const struct uns_layout *layout, uint64_t at_bytes);

#endif
