/* Tensors whose pieces are blocks (struct uns_block): elements of a checkpoint's tensors in another order. */
#ifndef UNS_MODEL_BLOCK_TENSOR_H
#define UNS_MODEL_BLOCK_TENSOR_H

#include "model/tree.h"

/* A tensor of `shape` that is in no catalog. Its elements are those of the n blocks, one behind the other; each block
 * is a whole number of rows. What is not its shape or dtype is that of the first block's first source.
 * Sources are tensors of `cat`; -EBADMSG if they differ in dtype. Pure. */
int uns_block_tensor_make(const struct uns_catalog *cat, const struct uns_shape *shape, const struct uns_block *block,
			  size_t n, struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err);

/* *t has the shape [n, rows, columns], and its elements as they are stored, in one stretch or in n blocks. It becomes a
 * tensor of the shape [n, columns, rows], each of the n matrices transposed. Not for a tensor without elements. Pure.
 */
int uns_block_tensor_transpose(const struct uns_catalog *cat, struct uns_named_tensor *t, struct uns_arena *arena,
			       struct uns_err *err);

#endif
