/* Arithmetic of boxes in shapes. Owns the rule that turns a box into stretches of the flattened tensor.
 * Must not know files, tensors or formats. Shapes and boxes that reach the functions without an error
 * argument have been through uns_shape_check and uns_box_inside, so nothing overflows here. */
#include "model/box.h"

#include <string.h>

#include <stdio.h>

#include "base/checked.h"
#include "base/search.h"

int uns_shape_check(const struct uns_shape *shape, enum uns_dtype dtype, struct uns_err *err)
{
	uint64_t bytes;
	uint32_t d;

	if (shape->n > UNS_MAX_DIMS)
		return uns_fail(err, -ENOTSUP, "a tensor has %u dimensions; unshard reads at most %d", shape->n,
				UNS_MAX_DIMS);
	if ((unsigned)dtype >= UNS_N_DTYPES)
		return uns_fail(err, -ENOTSUP, "a tensor has a dtype that unshard does not know");
	bytes = uns_dtype_size(dtype);
	/* A dimension of 0 must not hide an overflow of the others: strides multiply those too. */
	for (d = 0; d < shape->n; d++)
		if (shape->dim[d] && (!uns_u64_mul(bytes, shape->dim[d], &bytes) || bytes > (uint64_t)INT64_MAX))
			return uns_fail(err, -EBADMSG, "a tensor's shape makes more than 2^63 bytes");
	return 0;
}

static uint64_t elems_from(const struct uns_shape *shape, uint32_t d)
{
	uint64_t n = 1;

	for (; d < shape->n; d++)
		n *= shape->dim[d];
	return n;
}

uint64_t uns_shape_elems(const struct uns_shape *shape)
{
	return elems_from(shape, 0);
}

uint64_t uns_shape_row_elems(const struct uns_shape *shape)
{
	return elems_from(shape, 1);
}

bool uns_shape_equal(const struct uns_shape *a, const struct uns_shape *b)
{
	uint32_t d;

	for (d = 0; d < a->n && a->n == b->n; d++)
		if (a->dim[d] != b->dim[d])
			return false;
	return a->n == b->n;
}

const char *uns_shape_text(const struct uns_shape *shape, char *buf, size_t size)
{
	size_t at = 0;
	uint32_t d;
	int len;

	if (!size)
		return "";
	for (d = 0; d <= shape->n && at < size; d++) {
		if (d == shape->n)
			len = snprintf(buf + at, size - at, "%s]", d ? "" : "[");
		else
			len = snprintf(buf + at, size - at, "%s%llu", d ? ", " : "[",
				       (unsigned long long)shape->dim[d]);
		at += len > 0 ? (size_t)len : 0;
	}
	return buf;
}

void uns_shape_strides(const struct uns_shape *shape, uint64_t stride[UNS_MAX_DIMS])
{
	uint64_t product = 1;
	uint32_t d;

	for (d = shape->n; d-- > 0; product *= shape->dim[d])
		stride[d] = product;
}

bool uns_strides_are_c_order(const uint64_t *stride, const uint64_t *len, size_t n)
{
	uint64_t want = 1;
	size_t d;

	for (d = n; d-- > 0; want *= len[d])
		if (len[d] != 1 && stride[d] != want)
			return false;
	return true;
}

uint64_t uns_box_elems(const struct uns_box *box)
{
	uint64_t n = 1;
	uint32_t d;

	for (d = 0; d < box->n; d++)
		n *= box->len[d];
	return n;
}

bool uns_box_inside(const struct uns_box *box, const struct uns_shape *shape)
{
	uint32_t d;

	for (d = 0; d < box->n && box->n == shape->n; d++)
		if (!uns_inside(box->lo[d], box->len[d], shape->dim[d]))
			return false;
	return box->n == shape->n;
}

bool uns_box_equal(const struct uns_box *a, const struct uns_box *b)
{
	size_t n = a->n * sizeof(a->lo[0]);

	return a->n == b->n && memcmp(a->lo, b->lo, n) == 0 && memcmp(a->len, b->len, n) == 0;
}

bool uns_box_intersect(const struct uns_box *a, const struct uns_box *b, struct uns_box *out)
{
	uint64_t lo, end;
	uint32_t d;

	out->n = a->n;
	for (d = 0; d < a->n; d++) {
		lo = uns_u64_max(a->lo[d], b->lo[d]);
		end = uns_u64_min(a->lo[d] + a->len[d], b->lo[d] + b->len[d]);
		if (lo >= end)
			return false;
		out->lo[d] = lo;
		out->len[d] = end - lo;
	}
	return true;
}

bool uns_box_overlap(const struct uns_box *a, const struct uns_box *b)
{
	struct uns_box both;

	return a->n == b->n && uns_box_intersect(a, b, &both);
}

/* How many leading dimensions are outer ones, of which each index begins new stretches. A stretch spans the
 * last dimension that the box cuts, and all dimensions behind it, which are whole. */
static uint32_t outer_dims(const struct uns_box *box, const struct uns_shape *shape)
{
	uint32_t d = shape->n;

	while (d > 1 && box->len[d - 1] == shape->dim[d - 1])
		d--;
	return d ? d - 1 : 0;
}

uint64_t uns_box_at(const struct uns_shape *shape, uint64_t first, uint64_t end, struct uns_box *out)
{
	uint64_t stride[UNS_MAX_DIMS], n;
	uint32_t d, k = 0;

	uns_shape_strides(shape, stride);
	out->n = shape->n;
	for (d = 0; d < shape->n; d++) {
		out->lo[d] = first / stride[d] % shape->dim[d];
		out->len[d] = shape->dim[d];
	}
	if (!shape->n)
		return 1;
	while (k + 1 < shape->n && (first % stride[k] || end - first < stride[k]))
		k++;
	n = uns_u64_min((end - first) / stride[k], shape->dim[k] - out->lo[k]);
	for (d = 0; d < k; d++)
		out->len[d] = 1;
	out->len[k] = n;
	return n * stride[k];
}

struct uns_stretches uns_stretches_of_box(const struct uns_box *box, const struct uns_shape *shape)
{
	struct uns_stretches stretches = { .n = 1, .stretch_elems = 1 };
	uint64_t stride = 1;
	uint32_t d;

	stretches.outer = outer_dims(box, shape);
	for (d = shape->n; d-- > 0;) {
		stretches.base += box->lo[d] * stride;
		if (d < stretches.outer) {
			stretches.len[d] = box->len[d];
			stretches.stride[d] = stride;
			stretches.n *= box->len[d];
		} else {
			stretches.stretch_elems *= box->len[d];
		}
		stride *= shape->dim[d];
	}
	if (!stretches.stretch_elems)
		stretches.n = 0;
	return stretches;
}

bool uns_box_stretch(const struct uns_box *box, const struct uns_shape *shape, uint64_t *first, uint64_t *n_elems)
{
	const uint32_t outer = outer_dims(box, shape);
	uint64_t stride = 1, n = 1;
	uint32_t d;

	*first = 0;
	*n_elems = 1;
	for (d = shape->n; d-- > 0;) {
		*first += box->lo[d] * stride;
		*(d < outer ? &n : n_elems) *= box->len[d];
		stride *= shape->dim[d];
	}
	if (!n)
		*n_elems = 0;
	return n <= 1 || !*n_elems;
}

uint64_t uns_stretches_at(const struct uns_stretches *stretches, uint64_t k)
{
	uint64_t at = stretches->base;
	uint32_t d;

	for (d = stretches->outer; d-- > 0;) {
		at += k % stretches->len[d] * stretches->stride[d];
		k /= stretches->len[d];
	}
	return at;
}

uint64_t uns_stretches_find(const struct uns_stretches *stretches, uint64_t elem)
{
	uint64_t k;

	UNS_SEARCH(k, stretches->n, uns_stretches_at(stretches, k) + stretches->stretch_elems <= elem);
	return k;
}
