/* A torch.save file as a layout: the zip that torch writes, of any size, around tensors that stay
 * where they are.
 *
 *   STEM/data.pkl | STEM/.format_version | STEM/.storage_alignment | STEM/byteorder |
 *   STEM/data/0 .. STEM/data/N | STEM/version | STEM/.data/serialization_id |
 *   central directory | zip64 end | zip64 locator | end
 *
 * Every record's data starts 64-aligned, sizes and CRCs follow the data in a descriptor and stand in
 * the central directory, as torch 2.13 writes them. */
#ifndef UNS_FILES_TORCH_FILE_H
#define UNS_FILES_TORCH_FILE_H

#include "model/layout.h"
#include "wire/pickle_emit.h"

/* One storage. Either a catalog's tensor, given out as `out`, or literal bytes. */
struct uns_torch_leaf {
	const struct uns_tensor *tensor; /* NULL = literal */
	enum uns_dtype out;
	struct uns_shape shape;
	const uint8_t *literal; /* as many bytes as shape and out ask for; borrowed */
};

/* root's UNS_VALUE_TENSOR leaves index `leaves`. stem: the records' directory ("optimizer").
 * CRCs of literals are exact; a tensor's is filled in by the engine on read, where it is free
 * (UNS_FROM_CRC32); that of parts is 0, which torch does not look at. */
int uns_part_torch_file(const struct uns_catalog *cat, const struct uns_value *root,
			const struct uns_torch_leaf *leaves, size_t n_leaves, const char *stem,
			struct uns_arena *arena, struct uns_layout *out, struct uns_err *err);

/* The same behind a pickled dict without STOP (wire/pickle_emit.h), whose storages are the first
 * leaves, by their keys. */
int uns_part_torch_file_behind(const struct uns_catalog *cat, struct uns_span front,
			       const struct uns_value *root, const struct uns_torch_leaf *leaves,
			       size_t n_leaves, const char *stem, struct uns_arena *arena,
			       struct uns_layout *out, struct uns_err *err);

/* A storage that is put together from stretches of tensors, one behind the other. */
struct uns_torch_part {
	const struct uns_tensor *tensor; /* NULL = zeros */
	uint64_t first_elem, n_elems;
};

struct uns_torch_parts {
	const struct uns_torch_part *v; /* NULL = the leaf says what it is */
	size_t n;
};

/* The same with storages in parts, and for loaders that do not insist on weights_only=True: objects of
 * `classes` are allowed. */
struct uns_torch_input {
	const struct uns_catalog *cat;
	const struct uns_value *root;
	const struct uns_torch_leaf *leaves;
	const struct uns_torch_parts *parts; /* parallel to leaves, or NULL; a leaf in parts has no
	                                      * tensor, and its shape as many elements as they */
	size_t n_leaves;
	const char *stem;
	const struct uns_pickle_class *classes; /* see uns_pickle_emit */
	struct uns_span front; /* of uns_part_torch_file_behind; empty = none */
	struct uns_span pickle; /* all of it, written already; empty = root is written */
};

int uns_part_torch_file_of(const struct uns_torch_input *in, struct uns_arena *arena,
			   struct uns_layout *out, struct uns_err *err);

#endif
