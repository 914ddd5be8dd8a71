/* One layout of the parts' elements, whatever slices, sums or blocks they are, is the source. */
#include "model/joined_tensor.h"

#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "model/sum_tensor.h"

/* -- which elements these are -- */

static uint64_t factor_hash(uint64_t h, const struct uns_catalog *cat, const struct uns_factor *f);

static uint64_t blocks_hash(uint64_t h, const struct uns_catalog *cat, const struct uns_tensor *t)
{
	const struct uns_piece *piece = t->own, *end = piece + t->n_pieces;
	const struct uns_block *block;
	unsigned i;

	for (; piece < end; piece++) {
		block = piece->block;
		h = uns_hash_bytes(h, block->len, sizeof(block->len));
		h = uns_hash_u64(h, block->reversed);
		for (i = 0; i < block->n_sources; i++) {
			h = uns_hash_u64(h, (uint64_t)(block->source[i].tensor - cat->tensors));
			h = uns_hash_u64(h, block->source[i].first_elem);
		}
	}
	return h;
}

static uint64_t sum_hash(uint64_t h, const struct uns_catalog *cat, const struct uns_sum *sum)
{
	const struct uns_term *term = sum->term, *end = term + sum->n;

	h = uns_hash_u64(h, sum->columns);
	h = uns_hash_bytes(h, &sum->divisor, sizeof(sum->divisor));
	h = uns_hash_bytes(h, &sum->plus, sizeof(sum->plus));
	h = uns_hash_u64(uns_hash_u64(h, sum->scale.behind), sum->scale.normed);
	h = factor_hash(h, cat, &sum->scale.by);
	for (; term < end; term++) {
		h = uns_hash_bytes(h, &term->times, sizeof(term->times));
		h = uns_hash_u64(uns_hash_u64(h, term->inner), term->batch);
		h = factor_hash(factor_hash(h, cat, &term->left), cat, &term->right);
	}
	return h;
}

/* A tensor that was made for a view may lie where another lay, so that its address does not distinguish it. */
static uint64_t tensor_hash(uint64_t h, const struct uns_catalog *cat, const struct uns_tensor *t)
{
	if (t >= cat->tensors && t < cat->tensors + cat->n_tensors)
		return uns_hash_u64(h, (uint64_t)(t - cat->tensors));
	h = uns_hash_str(uns_hash_str(h, t->name), t->key);
	h = uns_hash_u64(uns_hash_u64(h, t->role), t->dtype);
	if (uns_tensor_is_of_blocks(t))
		h = blocks_hash(h, cat, t);
	return t->sum ? sum_hash(h, cat, t->sum) : h;
}

static uint64_t factor_hash(uint64_t h, const struct uns_catalog *cat, const struct uns_factor *f)
{
	if (!f->tensor)
		return uns_hash_u64(h, UINT64_MAX);
	return tensor_hash(uns_hash_u64(uns_hash_u64(h, f->as), f->first), cat, f->tensor);
}

static uint64_t source_hash(uint64_t h, const struct uns_joined *j)
{
	const struct uns_segment *s = j->source.segment, *end = s + j->source.n;

	for (; s < end; s++) {
		h = uns_hash_u64(uns_hash_u64(h, s->first_elem), s->len_bytes);
		h = tensor_hash(h, j->source.catalog, s->tensor);
	}
	return uns_hash_end(uns_hash_bytes(h, &j->order, sizeof(j->order)));
}

/* -- the order -- */

static bool is_in_order(const struct uns_joined_order *o)
{
	uint64_t step = 1;
	unsigned i;

	for (i = UNS_JOINED_LOOPS; i-- > 0; step *= o->loop[i].n)
		if (o->loop[i].n != 1 && o->loop[i].step_elems != step)
			return false;
	return o->first_elem == 0 && step == o->plane_elems;
}

/* Does the plane have all elements that the loops take, and are they as many as the shape has? */
static bool order_fits(const struct uns_joined_order *o, uint64_t n_source, uint64_t n_elems)
{
	uint64_t last = o->first_elem, n = o->n_planes, all, step;
	unsigned i;

	for (i = 0; i < UNS_JOINED_LOOPS; i++)
		if (!uns_u64_mul(o->loop[i].n - 1, o->loop[i].step_elems, &step) || !uns_u64_add(last, step, &last) ||
		    !uns_u64_mul(n, o->loop[i].n, &n))
			return false;
	return uns_u64_mul(o->n_planes, o->plane_elems, &all) && all == n_source && n == n_elems &&
	       last < o->plane_elems;
}

/* -- parts that lie behind each other in one tensor already -- */

static bool is_one_stretch(const struct uns_named_tensor *part, size_t n)
{
	uint64_t at = uns_named_first(&part[0]);
	size_t i;

	for (i = 0; i < n; i++) {
		if (part[i].tensor != part[0].tensor || uns_named_first(&part[i]) != at ||
		    (part[i].slice && uns_slice_stretches(part[i].slice) != 1))
			return false;
		at += uns_shape_elems(uns_named_shape(&part[i]));
	}
	return true;
}

static int stretch_take(const char *name, const struct uns_named_tensor *first, const struct uns_shape *shape,
			struct uns_arena *arena, struct uns_named_tensor *out, struct uns_err *err)
{
	struct uns_slice *slice;

	*out = (struct uns_named_tensor){ name, first->tensor, first->out, NULL };
	if (uns_named_first(first) == 0 && uns_shape_equal(&first->tensor->shape, shape))
		return 0;
	UNS_TRY_ALLOC(out->slice = slice = UNS_NEW(arena, struct uns_slice), err);
	*slice = (struct uns_slice){ .first_elem = uns_named_first(first), .shape = *shape };
	return 0;
}

/* -- the tensor -- */

static enum uns_dtype stored_dtype(const struct uns_catalog *cat, const struct uns_named_tensor *t)
{
	return uns_tensor_with_bytes(cat, t->tensor)->dtype;
}

static int parts_check(const struct uns_catalog *cat, const struct uns_named_tensor *part, size_t n,
		       struct uns_err *err)
{
	const enum uns_dtype stored = stored_dtype(cat, &part[0]);
	size_t i;

	for (i = 1; i < n; i++)
		if (part[i].out != part[0].out || stored_dtype(cat, &part[i]) != stored)
			return uns_fail(err, -EBADMSG, "%s has dtype %s, and %s has %s", part[0].name,
					uns_dtype_info(stored)->torch, part[i].name,
					uns_dtype_info(stored_dtype(cat, &part[i]))->torch);
	return 0;
}

static int joined_build(const struct uns_catalog *cat, const struct uns_named_tensor *part, size_t n,
			struct uns_joined *j, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_layout_builder b = { .arena = arena };
	struct uns_named_tensor as;
	size_t i;

	for (i = 0; i < n; i++) {
		as = part[i];
		as.out = stored_dtype(cat, &part[0]);
		uns_named_layout(&b, &as);
	}
	UNS_TRY(uns_layout_build(&b, cat, &j->source, err));
	j->id[0] = source_hash(UNS_HASH_INIT, j);
	j->id[1] = source_hash(~UNS_HASH_INIT, j);
	return 0;
}

int uns_joined_make(const struct uns_catalog *cat, const char *name, const struct uns_named_tensor *part, size_t n,
		    const struct uns_joined_order *order, const struct uns_shape *shape, struct uns_arena *arena,
		    struct uns_named_tensor *out, struct uns_err *err)
{
	struct uns_joined *j = UNS_NEW(arena, struct uns_joined);
	struct uns_tensor *tensor = UNS_NEW(arena, struct uns_tensor);
	const struct uns_tensor *first = uns_tensor_with_bytes(cat, part[0].tensor);
	uint64_t n_source = 0;
	char text[128];
	size_t i;

	UNS_TRY_ALLOC(j && tensor, err);
	UNS_TRY(parts_check(cat, part, n, err));
	for (i = 0; i < n; i++)
		n_source += uns_shape_elems(uns_named_shape(&part[i]));
	j->order = order ? *order : (struct uns_joined_order){ 1, n_source, 0, { { 0 }, { 0 }, { n_source, 1 } } };
	for (i = 0; i < UNS_JOINED_LOOPS; i++)
		j->order.loop[i].n = j->order.loop[i].n ? j->order.loop[i].n : 1;
	j->in_order = is_in_order(&j->order);
	if ((n_source || uns_shape_elems(shape)) && !order_fits(&j->order, n_source, uns_shape_elems(shape)))
		return uns_fail(err, -EBADMSG, "%s has the shape %s, which does not fit %s", part[0].name,
				uns_shape_text(uns_named_shape(&part[0]), text, sizeof(text)), name);
	if (j->in_order && is_one_stretch(part, n))
		return stretch_take(name, &part[0], shape, arena, out, err);
	UNS_TRY(joined_build(cat, part, n, j, arena, err));
	*tensor = (struct uns_tensor){ .name = first->name,
				       .key = first->key,
				       .root = first->root,
				       .role = first->role,
				       .dtype = stored_dtype(cat, &part[0]),
				       .shape = *shape,
				       .joined = j,
				       UNS_TENSOR_ALONE };
	*out = (struct uns_named_tensor){ name, tensor, part[0].out, NULL };
	return 0;
}
