/* One piece for each block. */
#include "model/block_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* The tensor that has the bytes; its dtype may be another one than that of the alias which was asked for. */
static int resolve(const struct uns_catalog *cat, struct uns_block *block, const struct uns_tensor *first,
		   struct uns_err *err)
{
	const struct uns_tensor *t;
	unsigned i;

	for (i = 0; i < block->n_sources; i++) {
		t = block->source[i].tensor = uns_tensor_with_bytes(cat, block->source[i].tensor);
		if (t->dtype != first->dtype)
			return uns_fail(err, -EBADMSG,
					"%s has dtype %s, and %s, which belongs to the same tensor, has %s", t->name,
					uns_dtype_info(t->dtype)->torch, first->name,
					uns_dtype_info(first->dtype)->torch);
	}
	return 0;
}

int uns_block_tensor_make(const struct uns_catalog *cat, const struct uns_shape *shape, const struct uns_block *block,
			  size_t n, struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err)
{
	const struct uns_tensor *first = uns_tensor_with_bytes(cat, block->source[0].tensor);
	struct uns_tensor *tensor = UNS_NEW(arena, struct uns_tensor);
	struct uns_piece *piece = UNS_NEW_N(arena, struct uns_piece, n);
	struct uns_block *own = UNS_NEW_N(arena, struct uns_block, n);
	struct uns_box *box = UNS_NEW_N(arena, struct uns_box, n);
	const uint64_t row = shape->dim[0] ? uns_shape_elems(shape) / shape->dim[0] : 0;
	uint64_t at = 0;
	size_t i;

	UNS_TRY_ALLOC(tensor && piece && own && box, err);
	memcpy(own, block, n * sizeof(*own));
	for (i = 0; i < n; i++) {
		UNS_TRY(resolve(cat, &own[i], first, err));
		box[i].n = shape->n;
		memcpy(box[i].len, shape->dim, sizeof(shape->dim));
		box[i].len[0] = row ? own[i].len[0] * own[i].len[1] * own[i].len[2] / row : 0;
		box[i].lo[0] = at;
		at += box[i].len[0];
		piece[i] = (struct uns_piece){
			.kind = UNS_PIECE_BOX, .box = &box[i], .container = UNS_BLOCK, .rank = -1, .block = &own[i]
		};
	}
	*tensor = *first;
	tensor->shape = *shape;
	tensor->own = piece;
	tensor->n_pieces = (uint32_t)n;
	tensor->alias_of = UNS_NONE;
	*out = tensor;
	return 0;
}

int uns_block_tensor_transpose(const struct uns_catalog *cat, struct uns_named_tensor *t, struct uns_arena *arena,
			       struct uns_err *err)
{
	const struct uns_shape *is = uns_named_shape(t);
	const struct uns_shape turned = { 3, { is->dim[0], is->dim[2], is->dim[1] } };
	const uint64_t n = is->dim[0], each = is->dim[1] * is->dim[2];
	const bool of_blocks = uns_tensor_is_of_blocks(t->tensor);
	UNS_CLEANUP(uns_free_p) struct uns_block *block = calloc(n, sizeof(*block));
	uint64_t i;

	UNS_TRY_ALLOC(block, err);
	for (i = 0; i < n; i++) {
		block[i] = of_blocks ? *t->tensor->own[i].block
				     : (struct uns_block){ .source = { { t->tensor, uns_named_first(t) + i * each } },
							   .n_sources = 1 };
		memcpy(block[i].len, (const uint64_t[]){ 1, is->dim[1], is->dim[2] }, sizeof(block[i].len));
		block[i].reversed = true;
	}
	UNS_TRY(uns_block_tensor_make(cat, &turned, block, n, arena, &t->tensor, err));
	t->slice = NULL;
	return 0;
}
