/* One layout of the matrix's elements, whatever slice or order they are of, serves both tensors. */
#include "model/scaled_tensor.h"

static const struct uns_tensor *tensor_new(const struct uns_tensor *like, const struct uns_scaled *of,
					   struct uns_arena *arena)
{
	const bool inverses = of->inverses;
	struct uns_scaled *scaled = UNS_NEW(arena, struct uns_scaled);
	struct uns_tensor *t = UNS_NEW(arena, struct uns_tensor);

	if (!scaled || !t)
		return NULL;
	*scaled = *of;
	*t = (struct uns_tensor){
		.name = like->name,
		.key = like->key,
		.root = like->root,
		.role = like->role,
		.dtype = inverses ? UNS_F32 : UNS_F8_E4M3,
		.shape = { 2,
			   { inverses ? uns_scaled_blocks(of->rows) : of->rows,
			     inverses ? uns_scaled_blocks(of->columns) : of->columns } },
		.scaled = scaled,
		UNS_TENSOR_ALONE,
	};
	return t;
}

int uns_scaled_make(const struct uns_catalog *cat, const struct uns_named_tensor *matrix, struct uns_arena *arena,
		    const struct uns_tensor **numbers, const struct uns_tensor **inverses, struct uns_err *err)
{
	const struct uns_shape *shape = uns_named_shape(matrix);
	struct uns_layout_builder b = { .arena = arena };
	struct uns_scaled of = { .dtype = matrix->out, .rows = shape->dim[0], .columns = shape->dim[1] };

	if (shape->n != 2 || !uns_shape_elems(shape) || !uns_dtype_info(matrix->out)->is_float ||
	    uns_dtype_size(matrix->out) < 2)
		return uns_fail(err, -EINVAL, "%s is no matrix of floating numbers", matrix->name);
	uns_named_layout(&b, matrix);
	UNS_TRY(uns_layout_build(&b, cat, &of.source, err));
	UNS_TRY_ALLOC(*numbers = tensor_new(matrix->tensor, &of, arena), err);
	of.inverses = true;
	UNS_TRY_ALLOC(*inverses = tensor_new(matrix->tensor, &of, arena), err);
	return 0;
}
