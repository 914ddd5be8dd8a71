/* Checks that each term has the elements that the sum takes of it. */
#include "model/sum_tensor.h"

#include <string.h>

#include "base/checked.h"

static int dtype_check(const struct uns_tensor *t, enum uns_dtype dtype, struct uns_err *err)
{
	if (uns_dtype_info(dtype)->is_float && uns_dtype_size(dtype) >= 2)
		return 0;
	return uns_fail(err, -ENOTSUP, "%s has dtype %s, with which unshard does not compute", t->name,
			uns_dtype_info(dtype)->torch);
}

static int factor_check(const struct uns_factor *f, uint64_t n_elems, struct uns_err *err)
{
	const uint64_t has = uns_shape_elems(&f->tensor->shape);

	UNS_TRY(dtype_check(f->tensor, f->tensor->dtype, err));
	UNS_TRY(dtype_check(f->tensor, f->as, err));
	if (f->first <= has && has - f->first >= n_elems)
		return 0;
	return uns_fail(err, -EBADMSG, "%s has %llu elements; %llu are needed from number %llu on", f->tensor->name,
			(unsigned long long)has, (unsigned long long)n_elems, (unsigned long long)f->first);
}

static int term_check(const struct uns_term *term, uint64_t n_elems, uint64_t columns, struct uns_err *err)
{
	uint64_t rows, batch, left, right;

	if (!term->right.tensor)
		return factor_check(&term->left, n_elems, err);
	rows = columns ? n_elems / columns : 0;
	batch = term->batch ? term->batch : rows;
	if (!rows || n_elems % columns || rows % batch || !uns_u64_mul(rows, term->inner, &left) ||
	    !uns_u64_mul(rows / batch * columns, term->inner, &right))
		return uns_fail(err, -EBADMSG, "%s is no matrix that could be multiplied", term->left.tensor->name);
	UNS_TRY(factor_check(&term->left, left, err));
	return factor_check(&term->right, right, err);
}

static int scale_check(const struct uns_scale *scale, uint64_t n_elems, struct uns_err *err)
{
	const struct uns_tensor *by = scale->by.tensor;
	uint64_t n = by ? uns_shape_elems(&by->shape) : 0, once;

	if (!by)
		return 0;
	UNS_TRY(factor_check(&scale->by, n, err));
	if (uns_u64_mul(n, scale->behind, &once) && once && n_elems % once == 0 && (!scale->normed || n_elems == once))
		return 0;
	return uns_fail(err, -EBADMSG, "%s has %llu elements, which do not fit those that they multiply", by->name,
			(unsigned long long)n);
}

int uns_sum_tensor_make(const struct uns_tensor *like, enum uns_dtype out, const struct uns_sum *sum,
			struct uns_arena *arena, const struct uns_tensor **made, struct uns_err *err)
{
	const uint64_t n_elems = uns_shape_elems(&like->shape);
	struct uns_tensor *tensor = UNS_NEW(arena, struct uns_tensor);
	struct uns_term *terms = UNS_NEW_N(arena, struct uns_term, sum->n);
	struct uns_sum *own = UNS_NEW(arena, struct uns_sum);
	size_t i;

	UNS_TRY_ALLOC(tensor && terms && own, err);
	UNS_TRY(dtype_check(like, out, err));
	for (i = 0; i < sum->n; i++)
		UNS_TRY(term_check(&sum->term[i], n_elems, sum->columns, err));
	UNS_TRY(scale_check(&sum->scale, n_elems, err));
	memcpy(terms, sum->term, sum->n * sizeof(*terms));
	*own = *sum;
	own->term = terms;
	*tensor = *like;
	tensor->dtype = out;
	tensor->first_piece = 0;
	tensor->n_pieces = 0;
	tensor->own = NULL;
	tensor->of = NULL;
	tensor->slice = NULL;
	tensor->renamed = NULL;
	tensor->alias_of = UNS_NONE;
	tensor->sum = own;
	*made = tensor;
	return 0;
}

static uint64_t factor_reads(const struct uns_catalog *cat, const struct uns_factor *f, uint64_t n_elems)
{
	return n_elems * uns_dtype_size(uns_tensor_with_bytes(cat, f->tensor)->dtype);
}

uint64_t uns_sum_tensor_reads(const struct uns_catalog *cat, const struct uns_tensor *tensor)
{
	const uint64_t n_elems = uns_shape_elems(&tensor->shape);
	const struct uns_sum *sum = tensor->sum;
	const struct uns_term *term, *end;
	uint64_t bytes = 0, rows;

	if (!sum)
		return n_elems * uns_dtype_size(uns_tensor_with_bytes(cat, tensor)->dtype);
	for (term = sum->term, end = term + sum->n; term < end; term++) {
		if (!term->right.tensor) {
			bytes += factor_reads(cat, &term->left, n_elems);
			continue;
		}
		rows = n_elems / sum->columns;
		bytes += factor_reads(cat, &term->left, rows * term->inner);
		bytes += factor_reads(cat, &term->right,
				      (term->batch ? rows / term->batch : 1) * sum->columns * term->inner);
	}
	bytes *= sum->scale.normed ? 2 : 1; /* once for the norms */
	return bytes + (sum->scale.by.tensor
				? factor_reads(cat, &sum->scale.by, uns_shape_elems(&sum->scale.by.tensor->shape))
				: 0);
}
