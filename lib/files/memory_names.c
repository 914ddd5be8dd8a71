/* Applies the rules of published_table.h in the other direction. */
#include "files/memory_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "files/published_names.h"
#include "model/block_tensor.h"

enum { RULES_OF = 5 }; /* transformers */

/* -- one name -- */

/* A tensor of the files, and its share of a tensor in memory. */
struct part {
	const struct uns_tensor *tensor;
	const char *whole;                /* its name in memory */
	const struct uns_name_rule *tail; /* NULL = no tail applies */
	uint64_t expert;
	size_t came, at; /* its place in the list, and that of its tensor in memory (0 = no matter) */
	bool renamed;
};

/* The rule that made this name; NULL = none did, because it is a name in memory. */
static const struct uns_name_rule *head_of(const struct uns_name_rule *rules, const char *name)
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

/* Do the first n characters end in the digits of a number? *digits: how many. */
static bool number_before(const char *name, size_t n, size_t *digits, uint64_t *out)
{
	size_t i = n;

	*out = 0;
	while (i > 0 && name[i - 1] >= '0' && name[i - 1] <= '9')
		i--;
	*digits = n - i;
	if (*digits == 0 || *digits > 9 || (*digits > 1 && name[i] == '0'))
		return false;
	for (; i < n; i++)
		*out = *out * 10 + (uint64_t)(name[i] - '0');
	return true;
}

/* Did the rule make this name? *kept: the length of the beginning that the rule kept. */
static bool tail_made(const struct uns_name_rule *rule, const char *name, size_t *kept, uint64_t *expert)
{
	size_t before = rule->unstack ? strcspn(rule->to, "#") : 0, digits, n;
	const char *after = rule->to + before + rule->unstack;

	*expert = 0;
	if (!uns_str_ends(name, after))
		return false;
	n = strlen(name) - strlen(after);
	if (rule->unstack) {
		if (!number_before(name, n, &digits, expert))
			return false;
		n -= digits;
		if (n < before || strncmp(name + n - before, rule->to, before) != 0)
			return false;
		n -= before;
	}
	*kept = n;
	return n == 0 || name[n - 1] == '.';
}

static int part_of(const struct uns_name_rule *heads, const struct uns_name_rule *tails, const struct uns_tensor *t,
		   struct uns_arena *arena, struct part *out, struct uns_err *err)
{
	const struct uns_name_rule *head, *tail;
	size_t kept;

	*out = (struct part){ .tensor = t, .whole = t->name };
	for (tail = tails; tail->from && !out->tail; tail++) {
		if (!tail_made(tail, t->name, &kept, &out->expert))
			continue;
		out->tail = tail;
		out->whole = uns_arena_printf(arena, "%.*s%s", (int)kept, t->name, tail->from);
		if (!out->whole)
			return uns_oom(err);
	}
	head = head_of(heads, out->whole);
	if (head)
		out->whole = uns_arena_printf(arena, "%s%s", head->from, out->whole + strlen(head->to));
	out->renamed = head || out->tail;
	return out->whole ? 0 : uns_oom(err);
}

/* -- all names -- */

struct parts {
	struct part *v; /* sorted by tensor in memory, and within it by the order of the elements */
	size_t n, n_renamed;
};

static int in_memory_order(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	int order = x->at == y->at ? uns_str_natural(x->whole, y->whole) : x->at < y->at ? -1 : 1;

	if (order || !x->tail || !y->tail)
		return order;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return (int)x->tail->part - (int)y->tail->part;
}

static int parts_find(const struct uns_naming *rules, const struct uns_tensor *const *tensor, size_t n,
		      struct uns_arena *arena, struct parts *out, struct uns_err *err)
{
	size_t i;

	*out = (struct parts){ .v = UNS_NEW_N(arena, struct part, n + 1) };
	if (!out->v)
		return uns_oom(err);
	for (i = 0; i < n; i++) {
		UNS_TRY(part_of(rules->head, rules->tail, tensor[i], arena, &out->v[i], err));
		out->v[i].came = i;
		out->n_renamed += out->v[i].renamed;
	}
	out->n = n;
	qsort(out->v, out->n, sizeof(*out->v), in_memory_order);
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
	return slice->n_stretches <= 1 && slice->n_rounds <= 1;
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

/* NULL if every part exists once and all have one shape and dtype, else the name of one that does not. */
static const char *hole_of(const struct part *first, size_t n)
{
	unsigned of = is_cut(first) ? first->tail->of : 1;
	size_t i;

	for (i = 0; i < n; i++)
		if (!is_cut(&first[i]) || first[i].tail->of != of || first[i].expert != i / of ||
		    first[i].tail->part != i % of || first[i].tensor->dtype != first->tensor->dtype ||
		    !uns_shape_equal(&first[i].tensor->shape, &first->tensor->shape))
			return first[i].tensor->name;
	if (first->tensor->of && !is_one_slice(first, n) && !are_blocks(first, n))
		return first->tensor->of->name;
	if (n % of || (!first->tail->unstack && n != of) || first->tensor->shape.n < 1 ||
	    first->tensor->shape.n + first->tail->unstack > UNS_MAX_DIMS)
		return first[n - 1].tensor->name;
	return NULL;
}

static struct uns_shape shape_of(const struct part *first, size_t n)
{
	struct uns_shape shape = first->tensor->shape;

	if (first->tail->unstack) {
		memmove(shape.dim + 1, shape.dim, shape.n * sizeof(*shape.dim));
		shape.dim[0] = n / first->tail->of;
		shape.n++;
	}
	shape.dim[first->tail->unstack] *= first->tail->of;
	return shape;
}

/* A piece of the k-th part, as a piece of the whole tensor. */
static int place(const struct uns_piece *piece, const struct part *p, size_t k, struct uns_arena *arena,
		 struct uns_piece *out, struct uns_err *err)
{
	const struct uns_shape *shape = &p->tensor->shape;
	struct uns_box *box;

	*out = *piece;
	if (piece->kind == UNS_PIECE_RANGE) {
		out->range.first += k * uns_shape_elems(shape);
		return 0;
	}
	box = UNS_NEW(arena, struct uns_box);
	if (!box)
		return uns_oom(err);
	*box = *piece->box;
	out->box = box;
	box->lo[0] += p->tail->part * shape->dim[0];
	if (p->tail->unstack) {
		memmove(box->lo + 1, box->lo, box->n * sizeof(*box->lo));
		memmove(box->len + 1, box->len, box->n * sizeof(*box->len));
		box->lo[0] = p->expert;
		box->len[0] = 1;
		box->n++;
	}
	return 0;
}

/* Strides have an entry for each dimension of the box. */
static int lift_strides(struct uns_piece *piece, struct uns_arena *arena, struct uns_err *err)
{
	uint64_t *stride;

	if (piece->kind != UNS_PIECE_BOX || !uns_piece_is_strided(piece))
		return 0;
	stride = UNS_NEW_N(arena, uint64_t, piece->box->n);
	if (!stride)
		return uns_oom(err);
	stride[0] = 0; /* of a length of 1 */
	memcpy(stride + 1, piece->stride_elems, (piece->box->n - 1) * sizeof(*stride));
	piece->stride_elems = stride;
	return 0;
}

static int join_slices(const struct part *first, const struct uns_shape *shape, struct uns_arena *arena,
		       const struct uns_tensor **out, struct uns_err *err)
{
	struct uns_tensor *whole = UNS_NEW(arena, struct uns_tensor);
	struct uns_slice *slice = UNS_NEW(arena, struct uns_slice);

	if (!whole || !slice)
		return uns_oom(err);
	*slice = (struct uns_slice){ .first_elem = first->tensor->slice->first_elem, .shape = *shape };
	*whole = *first->tensor;
	whole->name = first->whole;
	whole->shape = *shape;
	whole->slice = slice;
	*out = whole;
	return 0;
}

/* The parts of one expert. */
static struct uns_block block_of(const struct part *first)
{
	struct uns_block block = { .n_sources = first->tail->of,
				   .len = { first->tail->of, 1, uns_shape_elems(&first->tensor->shape) } };
	unsigned i;

	for (i = 0; i < block.n_sources; i++)
		block.source[i] = (struct uns_block_source){ first[i].tensor->of, first[i].tensor->slice->first_elem };
	return block;
}

static int join_blocks(const struct uns_catalog *cat, const struct part *first, size_t n, const struct uns_shape *shape,
		       struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err)
{
	const size_t of = first->tail->of, n_blocks = n / of;
	UNS_CLEANUP(uns_free_p) struct uns_block *block = calloc(n_blocks, sizeof(*block));
	const struct uns_tensor *made;
	struct uns_tensor *whole = UNS_NEW(arena, struct uns_tensor);
	size_t i;

	if (!block || !whole)
		return uns_oom(err);
	for (i = 0; i < n_blocks; i++)
		block[i] = block_of(&first[i * of]);
	UNS_TRY(uns_block_tensor_make(cat, shape, block, n_blocks, arena, &made, err));
	*whole = *first->tensor;
	whole->name = first->whole;
	whole->shape = *shape;
	whole->dtype = made->dtype;
	whole->of = NULL;
	whole->slice = NULL;
	whole->own = made->own;
	whole->n_pieces = made->n_pieces;
	*out = whole;
	return 0;
}

static int join(const struct uns_catalog *cat, const struct part *first, size_t n, const struct uns_shape *shape,
		struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err)
{
	struct uns_tensor *whole = UNS_NEW(arena, struct uns_tensor);
	const struct uns_tensor *t;
	struct uns_piece *piece;
	size_t i, k, n_pieces = 0;

	for (i = 0; i < n; i++)
		n_pieces += uns_tensor_with_bytes(cat, first[i].tensor)->n_pieces;
	piece = UNS_NEW_N(arena, struct uns_piece, n_pieces + 1);
	if (!whole || !piece)
		return uns_oom(err);
	*whole = *first->tensor;
	whole->name = first->whole;
	whole->shape = *shape;
	whole->own = piece;
	whole->n_pieces = (uint32_t)n_pieces;
	whole->alias_of = UNS_NONE;
	for (i = 0; i < n; i++) {
		t = uns_tensor_with_bytes(cat, first[i].tensor);
		for (k = 0; k < t->n_pieces; k++, piece++) {
			UNS_TRY(place(&uns_tensor_pieces(cat, t)[k], &first[i], i, arena, piece, err));
			if (first->tail->unstack)
				UNS_TRY(lift_strides(piece, arena, err));
		}
	}
	*out = whole;
	return 0;
}

static int join_any(const struct uns_catalog *cat, const struct part *first, size_t n, const struct uns_shape *shape,
		    struct uns_arena *arena, const struct uns_tensor **out, struct uns_err *err)
{
	if (!first->tensor->of)
		return join(cat, first, n, shape, arena, out, err);
	if (is_one_slice(first, n))
		return join_slices(first, shape, arena, out, err);
	return join_blocks(cat, first, n, shape, arena, out, err);
}

static int list(const struct uns_catalog *cat, const struct parts *parts, struct uns_arena *arena,
		struct uns_memory_names *out, struct uns_err *err)
{
	struct uns_named_tensor *v = UNS_NEW_N(arena, struct uns_named_tensor, parts->n + 1);
	const struct uns_tensor *tensor;
	const struct part *p;
	struct uns_shape shape;
	size_t i, k;

	if (!v)
		return uns_oom(err);
	for (i = 0; i < parts->n; i += k) {
		p = &parts->v[i];
		k = n_of_whole(p, parts->n - i);
		tensor = p->tensor;
		if (k > 1 || is_cut(p)) {
			out->hole = hole_of(p, k);
			if (out->hole)
				return 0;
			shape = shape_of(p, k);
			if (uns_shape_check(&shape, tensor->dtype, NULL) < 0) {
				out->hole = tensor->name;
				return 0;
			}
			UNS_TRY(join_any(cat, p, k, &shape, arena, &tensor, err));
		}
		v[out->n++] = (struct uns_named_tensor){ p->whole, tensor, tensor->dtype, NULL };
		if (p->renamed && !out->first)
			out->first = p->tensor->name;
	}
	out->v = v;
	return 0;
}

/* By the heads that rename more. */
static int parts_find_best(const struct uns_naming *rules, const struct uns_tensor *const *tensor, size_t n,
			   struct uns_arena *arena, struct parts *out, struct uns_err *err)
{
	const struct uns_naming of_new = { .head = rules->new_head, .tail = rules->tail };
	struct parts other;

	UNS_TRY(parts_find(rules, tensor, n, arena, out, err));
	if (rules->new_head == rules->head)
		return 0;
	UNS_TRY(parts_find(&of_new, tensor, n, arena, &other, err));
	if (other.n_renamed > out->n_renamed)
		*out = other;
	return 0;
}

static int names_find(const struct uns_catalog *cat, const struct parts *parts, struct uns_arena *arena,
		      struct uns_memory_names *out, struct uns_err *err)
{
	if (!parts->n_renamed)
		return 0;
	UNS_TRY(list(cat, parts, arena, out, err));
	out->n_renamed = parts->n_renamed;
	if (out->hole)
		out->n = 0;
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
	tensor = UNS_NEW_N(arena, const struct uns_tensor *, cat->n_tensors + 1);
	if (!tensor)
		return uns_oom(err);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_model(cat->tensors[i].role))
			tensor[n++] = &cat->tensors[i];
	UNS_TRY(parts_find_best(&rules, tensor, n, arena, &parts, err));
	return names_find(cat, &parts, arena, out, err);
}

/* Each tensor in memory comes where the first of its parts came. */
static void keep_order(struct parts *parts)
{
	size_t i, k, j, at;

	for (i = 0; i < parts->n; i += k) {
		k = n_of_whole(&parts->v[i], parts->n - i);
		at = parts->v[i].came;
		for (j = i; j < i + k; j++)
			at = parts->v[j].came < at ? parts->v[j].came : at;
		for (j = i; j < i + k; j++)
			parts->v[j].at = at;
	}
	qsort(parts->v, parts->n, sizeof(*parts->v), in_memory_order);
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
	UNS_TRY(parts_find_best(&rules, tensor, n, arena, &parts, err));
	keep_order(&parts);
	return names_find(cat, &parts, arena, out, err);
}
