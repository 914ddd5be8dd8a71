/* A torch.save file as a layout: the zip that torch writes, of any size, around tensors that stay where they are.
 *
 *   STEM/data.pkl | STEM/.format_version | STEM/.storage_alignment | STEM/byteorder |
 *   STEM/data/0 .. STEM/data/N | STEM/version | STEM/.data/serialization_id |
 *   central directory | zip64 end | zip64 locator | end
 *
 * Every record's data starts 64-aligned, sizes and CRCs follow the data in a descriptor and are in the central
 * directory, as torch 2.13 writes them. */
#ifndef UNS_FILES_TORCH_FILE_H
#define UNS_FILES_TORCH_FILE_H

#include "model/tree.h"
#include "wire/pickle_emit.h"

/* A range of a tensor's elements, or zeros. */
struct uns_torch_part {
	const struct uns_tensor *tensor; /* NULL = zeros */
	uint64_t first_elem, n_elems;
};

/* One storage: a catalog's tensor, ranges of elements one after the other, or literal bytes. */
struct uns_torch_leaf {
	const struct uns_tensor *tensor; /* NULL = parts or literal */
	enum uns_dtype out;              /* the dtype that is written */
	struct uns_shape shape;
	/* NULL = literal. Borrowed; all ranges together have as many elements as the shape. */
	const struct uns_torch_part *part;
	size_t n_parts;
	const uint8_t *literal; /* borrowed; as many bytes as shape and `out` need */
};

/* The storages of a file, in their order. Zero-initialised is empty. */
struct uns_torch_leaves {
	struct uns_torch_leaf *v;
	size_t n, cap;
};

void uns_torch_leaves_fini(struct uns_torch_leaves *leaves);

/* Add a storage. Returns the value (in the arena) that refers to it in the pickle; NULL = out of memory. */
const struct uns_value *uns_torch_leaf_add(struct uns_torch_leaves *leaves, struct uns_arena *arena,
					   const struct uns_torch_leaf *leaf);
/* The same for a whole tensor, in its own dtype. */
const struct uns_value *uns_torch_tensor_add(struct uns_torch_leaves *leaves, struct uns_arena *arena,
					     const struct uns_tensor *t);
/* An optimizer's step as torch keeps it: 0-d float32 (torch/optim/optimizer.py, _get_scalar_dtype). */
const struct uns_value *uns_torch_step_add(struct uns_torch_leaves *leaves, struct uns_arena *arena, double step);

struct uns_torch_input {
	const struct uns_catalog *cat;
	const struct uns_value *root;          /* its UNS_VALUE_TENSOR values index `leaves` */
	const struct uns_torch_leaves *leaves; /* NULL = none */
	const char *stem;                      /* the records' directory: "optimizer" */
	/* Objects of these classes may be written (see uns_pickle_emit), for loaders that do not pass
	 * weights_only=True. NULL = of no class. */
	const struct uns_pickle_class *classes;
	/* A pickled dict without STOP (wire/pickle_emit.h), to which root is added. Its storages are the first leaves,
	 * under their own keys. Empty = none. */
	struct uns_span front;
	struct uns_span pickle; /* the complete pickle; empty = root is pickled */
};

/* CRCs of literals are exact. The engine fills in a tensor's CRC when it is read, if the CRC is known without reading
 * more (UNS_FROM_CRC32). The CRC of ranges is 0, which torch ignores. Layout and bytes live in the arena; `in` is only
 * borrowed. */
int uns_part_torch_file(const struct uns_torch_input *in, struct uns_arena *arena, struct uns_layout *out,
			struct uns_err *err);

/* The same, added to the tree as a file. path, origin: NULL = out of memory. */
int uns_torch_file_add(const struct uns_torch_input *in, const char *path, const char *origin, struct uns_vtree *out,
		       struct uns_err *err);

#endif
