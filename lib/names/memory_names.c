/* Applies the rules of published_table.h in the other direction. */
#include "names/memory_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "names/published_names.h"
#include "model/block_tensor.h"

enum { RULES_OF = 5 }; /* transformers */

/* A tensor of the files, and its share of a tensor in memory. */
struct part {
	const struct uns_tensor *tensor;
	const char *whole;                /* its name in memory */
	const struct uns_name_rule *tail; /* NULL = no tail applies */
	uint64_t expert;
	size_t at; /* the number of its tensor in memory, if that matters: where the first of its parts came */
	bool renamed;
};

struct parts {
	struct part *v; /* once sorted: by tensor in memory, and within it by the order of the elements */
	size_t n, n_renamed;
};

/* -- names: the rules of the published names, backwards -- */

/* The rule that made this name; NULL = none did, because it is a name in memory. */
static const struct uns_name_rule *head_that_made(const struct uns_name_rule *rules, const char *name)
{
	const struct uns_name_rule *rule;

	for (rule = rules; rule->from; rule++)
		if (uns_head_fits(rule->from, name))
			return NULL;
	for (rule = rules; rule->from; rule++)
		if (uns_head_fits(rule->to, name))
			return rule;
	return NULL;
}

static int part_of(const struct uns_name_rule *head, const struct uns_name_rule *tail, const struct uns_tensor *t,
		   struct uns_arena *arena, struct part *out, struct uns_err *err)
{
	size_t kept;

	*out = (struct part){ .tensor = t, .whole = t->name };
	while (tail->from && !uns_template_ends(t->name, tail->to, &kept, &out->expert))
		tail++;
	if (tail->from) {
		out->tail = tail;
		UNS_TRY_ALLOC(out->whole = uns_arena_printf(arena, "%.*s%s", (int)kept, t->name, tail->from), err);
	}
	head = head_that_made(head, out->whole);
	if (head)
		out->whole = uns_arena_printf(arena, "%s%s", head->from, out->whole + strlen(head->to));
	out->renamed = head || out->tail;
	return out->whole ? 0 : uns_oom(err);
}

/* Of two parts of one tensor in memory. */
static int in_order_of_elements(const struct part *x, const struct part *y)
{
	if (!x->tail || !y->tail)
		return 0;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return (int)x->tail->part - (int)y->tail->part;
}

static int in_natural_order(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	const int order = uns_str_natural(x->whole, y->whole);

	return order ? order : in_order_of_elements(x, y);
}

static int in_given_order(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return x->at == y->at ? in_order_of_elements(x, y) : x->at < y->at ? -1 : 1;
}

/* By the heads of the family, or by those of a model that was never loaded: by those that rename more. */
static int parts_find(const struct uns_naming *rules, const struct uns_tensor *const *tensor, size_t n,
		      struct uns_arena *arena, struct parts *out, struct uns_err *err)
{
	const struct uns_name_rule *const heads[] = { rules->head, rules->new_head };
	struct parts parts;
	size_t i, k;

	for (k = 0; k < (rules->head == rules->new_head ? 1 : 2); k++) {
		parts = (struct parts){ .v = UNS_NEW_N(arena, struct part, n + 1), .n = n };
		UNS_TRY_ALLOC(parts.v, err);
		for (i = 0; i < n; i++) {
			UNS_TRY(part_of(heads[k], rules->tail, tensor[i], arena, &parts.v[i], err));
			parts.n_renamed += parts.v[i].renamed;
		}
		if (k == 0 || parts.n_renamed > out->n_renamed)
			*out = parts;
	}
	return 0;
}

/* -- tensors of several parts -- */

static bool is_cut(const struct part *p)
{
	return p->tail && (p->tail->unstack || p->tail->of > 1);
}

/* How many parts, from the first on, belong to one tensor. */
static size_t n_of_whole(const struct part *first, size_t n)
{
	size_t k = 1;

	while (k < n && strcmp(first[k].whole, first->whole) == 0)
		k++;
	return k;
}

static bool is_contiguous(const struct uns_slice *slice)
{
	return uns_slice_stretches(slice) == 1;
}

/* Do all parts, in their order, make one slice of one tensor? */
static bool is_one_slice(const struct part *first, size_t n)
{
	const struct uns_slice *slice, *before = first->tensor->slice;
	size_t i;

	for (i = 0; i < n; i++, before = slice) {
		slice = first[i].tensor->slice;
		if (first[i].tensor->of != first->tensor->of || !is_contiguous(slice) ||
		    (i && slice->first_elem != before->first_elem + uns_shape_elems(&before->shape)))
			return false;
	}
	return true;
}

/* Can the slices be blocks, each of all parts of one expert? */
static bool are_blocks(const struct part *first, size_t n)
{
	size_t i = 0;

	while (i < n && first[i].tensor->of && is_contiguous(first[i].tensor->slice))
		i++;
	return i == n && first->tail->of <= UNS_BLOCK_SOURCES;
}

/* Every part exists once, and all have one shape and dtype: returns NULL and the tensor's shape in *whole. Otherwise
 * returns the name of one that does not fit. */
static const char *hole_of(const struct part *first, size_t n, struct uns_shape *whole)
{
	const struct uns_tensor *t = first->tensor;
	const unsigned of = is_cut(first) ? first->tail->of : 1;
	const bool unstack = is_cut(first) && first->tail->unstack;
	size_t i;

	for (i = 0; i < n; i++)
		if (!is_cut(&first[i]) || first[i].tail->of != of || first[i].expert != i / of ||
		    first[i].tail->part != i % of || first[i].tensor->dtype != t->dtype ||
		    !uns_shape_equal(&first[i].tensor->shape, &t->shape))
			return first[i].tensor->name;
	if (t->of && !is_one_slice(first, n) && !are_blocks(first, n))
		return t->of->name;
	if (n % of || (!unstack && n != of) || t->shape.n < 1 || t->shape.n + unstack > UNS_MAX_DIMS)
		return first[n - 1].tensor->name;
	*whole = t->shape;
	if (unstack) {
		memmove(whole->dim + 1, whole->dim, whole->n * sizeof(*whole->dim));
		whole->dim[0] = n / of;
		whole->n++;
	}
	whole->dim[unstack] *= of;
	return uns_shape_check(whole, t->dtype, NULL) < 0 ? t->name : NULL;
}

/* A piece of the k-th part, as a piece of the whole tensor. */
static int piece_lift(const struct uns_piece *piece, const struct part *p, size_t k, struct uns_arena *arena,
		      struct uns_piece *out, struct uns_err *err)
{
	const bool unstack = p->tail->unstack;
	struct uns_box *box;
	uint64_t *stride;

	*out = *piece;
	if (piece->kind == UNS_PIECE_RANGE) {
		out->range.first += k * uns_shape_elems(&p->tensor->shape);
		return 0;
	}
	out->box = box = UNS_NEW(arena, struct uns_box);
	UNS_TRY_ALLOC(box, err);
	*box = *piece->box;
	box->lo[0] += p->tail->part * p->tensor->shape.dim[0];
	if (!unstack)
		return 0;
	memmove(box->lo + 1, box->lo, box->n * sizeof(*box->lo));
	memmove(box->len + 1, box->len, box->n * sizeof(*box->len));
	box->lo[0] = p->expert;
	box->len[0] = 1;
	box->n++;
	if (!uns_piece_is_strided(piece))
		return 0;
	/* Strides have an entry for each dimension of the box; that of a length of 1 is 0. */
	out->stride_elems = stride = UNS_NEW_N(arena, uint64_t, box->n);
	UNS_TRY_ALLOC(stride, err);
	memcpy(stride + 1, piece->stride_elems, (box->n - 1) * sizeof(*stride));
	return 0;
}

/* Gives the whole tensor the pieces of all parts. */
static int pieces_join(const struct uns_catalog *cat, const struct part *first, size_t n, struct uns_arena *arena,
		       struct uns_tensor *whole, struct uns_err *err)
{
	const struct uns_tensor *t;
	struct uns_piece *piece;
	size_t i, k, n_pieces = 0;

	for (i = 0; i < n; i++)
		n_pieces += uns_tensor_with_bytes(cat, first[i].tensor)->n_pieces;
	whole->own = piece = UNS_NEW_N(arena, struct uns_piece, n_pieces + 1);
	UNS_TRY_ALLOC(piece, err);
	whole->n_pieces = (uint32_t)n_pieces;
	whole->alias_of = UNS_NONE;
	for (i = 0; i < n; i++) {
		t = uns_tensor_with_bytes(cat, first[i].tensor);
		for (k = 0; k < t->n_pieces; k++, piece++)
			UNS_TRY(piece_lift(&uns_tensor_pieces(cat, t)[k], &first[i], i, arena, piece, err));
	}
	return 0;
}

/* Gives the whole tensor blocks, each of the parts of one expert. */
static int blocks_join(const struct uns_catalog *cat, const struct part *first, size_t n, struct uns_arena *arena,
		       struct uns_tensor *whole, struct uns_err *err)
{
	const unsigned of = first->tail->of;
	UNS_CLEANUP(uns_free_p) struct uns_block *block = calloc(n, sizeof(*block));
	const struct uns_tensor *made;
	size_t i;

	UNS_TRY_ALLOC(block, err);
	for (i = 0; i < n; i++)
		block[i / of].source[i % of] =
			(struct uns_block_source){ first[i].tensor->of, first[i].tensor->slice->first_elem };
	for (i = 0; i < n / of; i++) {
		block[i].n_sources = of;
		memcpy(block[i].len, (const uint64_t[]){ of, 1, uns_shape_elems(&first->tensor->shape) },
		       sizeof(block[i].len));
	}
	UNS_TRY(uns_block_tensor_make(cat, &whole->shape, block, n / of, arena, &made, err));
	whole->dtype = made->dtype;
	whole->of = NULL;
	whole->slice = NULL;
	whole->own = made->own;
	whole->n_pieces = made->n_pieces;
	return 0;
}

static int tensor_join(const struct uns_catalog *cat, const struct part *first, size_t n, const struct uns_shape *shape,
		       struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err)
{
	struct uns_tensor *whole = UNS_NEW(arena, struct uns_tensor);
	struct uns_slice *slice;

	UNS_TRY_ALLOC(whole, err);
	*whole = *first->tensor;
	whole->name = first->whole;
	whole->shape = *shape;
	*out = whole;
	if (!whole->of)
		return pieces_join(cat, first, n, arena, whole, err);
	if (!is_one_slice(first, n))
		return blocks_join(cat, first, n, arena, whole, err);
	whole->slice = slice = UNS_NEW(arena, struct uns_slice);
	UNS_TRY_ALLOC(slice, err);
	*slice = (struct uns_slice){ .first_elem = first->tensor->slice->first_elem, .shape = *shape };
	return 0;
}

/* -- all of them -- */

/* Nothing is listed if no part is renamed, or a tensor has a hole. */
static int tensors_list(const struct uns_catalog *cat, const struct parts *parts, struct uns_arena *arena,
			struct uns_memory_names *out, struct uns_err *err)
{
	struct uns_named_tensor *v;
	const struct uns_tensor *tensor;
	const struct part *p;
	struct uns_shape shape;
	size_t i, k, n = 0;

	if (!parts->n_renamed)
		return 0;
	out->n_renamed = parts->n_renamed;
	out->v = v = UNS_NEW_N(arena, struct uns_named_tensor, parts->n + 1);
	UNS_TRY_ALLOC(v, err);
	for (i = 0; i < parts->n; i += k) {
		p = &parts->v[i];
		k = n_of_whole(p, parts->n - i);
		tensor = p->tensor;
		if (k > 1 || is_cut(p)) {
			out->hole = hole_of(p, k, &shape);
			if (out->hole)
				return 0;
			UNS_TRY(tensor_join(cat, p, k, &shape, arena, &tensor, err));
		}
		v[n++] = (struct uns_named_tensor){ p->whole, tensor, tensor->dtype, NULL };
		if (p->renamed && !out->first)
			out->first = p->tensor->name;
	}
	out->n = n;
	return 0;
}

int uns_memory_names_find(const struct uns_config_info *config, const struct uns_catalog *cat, struct uns_arena *arena,
			  struct uns_memory_names *out, struct uns_err *err)
{
	const struct uns_tensor **tensor;
	struct uns_naming rules;
	struct parts parts;
	size_t i, n = 0;

	*out = (struct uns_memory_names){ 0 };
	if (!cat->summary.is_published || !(cat->summary.resumed_by & UNS_BY_TRAINER) ||
	    config->transformers < RULES_OF || !uns_published_rules(config, &rules))
		return 0;
	UNS_TRY_ALLOC(tensor = UNS_NEW_N(arena, const struct uns_tensor *, cat->n_tensors + 1), err);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_model(cat->tensors[i].role))
			tensor[n++] = &cat->tensors[i];
	UNS_TRY(parts_find(&rules, tensor, n, arena, &parts, err));
	qsort(parts.v, n, sizeof(*parts.v), in_natural_order);
	return tensors_list(cat, &parts, arena, out, err);
}

/* Each tensor in memory comes where the first of its parts came. There are far fewer of them than parts. */
static int parts_number(const struct parts *parts, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map first = UNS_MAP_INIT;
	struct part *p = parts->v, *end = p + parts->n;
	uint32_t at;

	for (; p < end; p++) {
		at = uns_map_index(&first, p->whole);
		if (at == UNS_MAP_NO_INDEX) {
			at = (uint32_t)(p - parts->v);
			UNS_TRY_ALLOC(uns_map_put_index(&first, p->whole, at), err);
		}
		p->at = at;
	}
	return 0;
}

int uns_memory_names_of_slices(const struct uns_config_info *config, const struct uns_catalog *cat,
			       const struct uns_tensor *const *tensor, size_t n, struct uns_arena *arena,
			       struct uns_memory_names *out, struct uns_err *err)
{
	struct uns_naming rules;
	struct parts parts;

	*out = (struct uns_memory_names){ 0 };
	if (config->transformers < RULES_OF || !uns_published_rules(config, &rules))
		return 0;
	UNS_TRY(parts_find(&rules, tensor, n, arena, &parts, err));
	UNS_TRY(parts_number(&parts, err));
	qsort(parts.v, n, sizeof(*parts.v), in_given_order);
	return tensors_list(cat, &parts, arena, out, err);
}
