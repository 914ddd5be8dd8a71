/* Reads the maps of slices, and proves that those of all ranks cover each parameter exactly once. */
#include "parallel/slices.h"

#include <string.h>

#include "base/checked.h"

enum { MAP_VERSION = 1, MAX_BLOCKS = 1 << 12 };

void uns_zero_slices_fini(struct uns_zero_slices *slices)
{
	uns_map_fini(&slices->by_name);
}

/* -- one box of a map -- */

/* The map that is being read: findings name these. */
struct reading {
	const char *file, *name;
	const char *by; /* what cut it */
	struct uns_arena *arena;
	size_t rank;
};

static int not_understood(const struct reading *r, const char *cause, struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_MAP_UNKNOWN, .scope = UNS_SCOPE_ALL, .file = r->file, .tensor = r->name,
			     .rank = uns_num(r->rank),
			     .arg = { { "cause", uns_str(cause) }, { "by", uns_str(r->by) } });
}

static bool read_shape(const struct uns_value *v, struct uns_shape *out)
{
	size_t n;

	if (!uns_value_dims(v, out->dim, UNS_MAX_DIMS, &n) || n > UNS_MAX_DIMS)
		return false;
	out->n = (uint32_t)n;
	return uns_shape_check(out, UNS_F64, NULL) == 0;
}

/* [offset, [stride, ..]] as a box of `shape`. false: it is none. Strides of dimensions that it does not span are not
 * looked at. */
static bool read_box(const struct uns_value *v, const struct uns_shape *shape, struct uns_box *box)
{
	const struct uns_value *strides = uns_value_at(v, 1);
	uint64_t want[UNS_MAX_DIMS], offset, stride;
	uint32_t d;

	uns_shape_strides(shape, want);
	if (!uns_value_u64(uns_value_at(v, 0), &offset) || offset >= uns_shape_elems(shape))
		return false;
	for (d = 0; d < shape->n; d++) {
		if (!uns_value_u64(uns_value_at(strides, d), &stride) || (box->len[d] > 1 && stride != want[d]))
			return false;
		box->lo[d] = offset / want[d];
		offset %= want[d];
	}
	return uns_box_inside(box, shape);
}

/* 1 = a box; 0 = an empty one. *holder: the lowest rank that holds it. */
static int read_block(const struct reading *r, const struct uns_value *v, const struct uns_shape *whole,
		      const struct uns_shape *slice, struct uns_zero_block *out, uint64_t *holder, struct uns_err *err)
{
	const struct uns_value *scale = uns_value_get(v, "scale"), *locations = uns_value_get(v, "locations");
	bool known = true;
	struct uns_shape shape;
	double factor = 1;
	uint64_t rank;
	size_t i;

	*holder = UINT64_MAX;
	for (i = 0; uns_value_at(locations, i); i++) {
		known = known && uns_value_u64(locations->item[i], &rank);
		*holder = known ? uns_u64_min(*holder, rank) : UINT64_MAX;
	}
	if (!read_shape(uns_value_get(v, "shape"), &shape) || shape.n != whole->n || shape.n != slice->n ||
	    *holder == UINT64_MAX)
		return not_understood(r, "a piece has not the form that is known", err);
	if (scale && (!uns_value_float(scale, &factor) || factor != 1))
		return not_understood(r, "the rank holds it multiplied by a factor", err);
	if (!uns_shape_elems(&shape))
		return 0;
	out->whole = out->slice = (struct uns_box){ .n = shape.n };
	memcpy(out->whole.len, shape.dim, sizeof(shape.dim));
	memcpy(out->slice.len, shape.dim, sizeof(shape.dim));
	if (!read_box(uns_value_get(v, "source"), whole, &out->whole) ||
	    !read_box(uns_value_get(v, "dest"), slice, &out->slice))
		return not_understood(r, "a piece is no box of it", err);
	return 1;
}

/* -- one rank's slice -- */

/* rank -1: what is not covered is the parameter. expected, found: elements, where they are known. */
static int does_not_cover(const struct reading *r, int64_t rank, struct uns_datum expected, struct uns_datum found,
			  struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_MAP_COVERS_NOT, .scope = UNS_SCOPE_ALL, .file = r->file, .tensor = r->name,
			     .rank = uns_rank(rank), .expected = expected, .found = found,
			     .arg = { { "by", uns_str(r->by) } });
}

static int holds_twice(const struct reading *r, uint64_t other, struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_MAP_OVERLAPS, .scope = UNS_SCOPE_ALL, .file = r->file, .tensor = r->name,
			     .rank = uns_num(r->rank),
			     .arg = { { "other", uns_num(other) }, { "by", uns_str(r->by) } });
}

static int read_slice(const struct reading *r, const struct uns_value *v, const struct uns_shape *whole,
		      struct uns_zero_slice *out, struct uns_err *err)
{
	const struct uns_value *pieces = uns_value_get(v, "pieces");
	size_t i, k, n = pieces && pieces->kind == UNS_VALUE_LIST ? pieces->n : 0;
	struct uns_zero_block *b, block;
	uint64_t held = 0, holder;
	int code;

	if (!read_shape(uns_value_get(v, "shard_shape"), &out->shape) || n > MAX_BLOCKS)
		return not_understood(r, "it has no shape for the rank", err);
	UNS_TRY_ALLOC(out->block = b = UNS_NEW_N(r->arena, struct uns_zero_block, n), err);
	for (i = 0; i < n; i++) {
		UNS_TRY(code = read_block(r, pieces->item[i], whole, &out->shape, &block, &holder, err));
		if (!code)
			continue;
		for (k = 0; k < out->n; k++)
			if (uns_box_overlap(&b[k].slice, &block.slice) || uns_box_overlap(&b[k].whole, &block.whole))
				return holds_twice(r, r->rank, err);
		held += uns_box_elems(&block.slice);
		k = holder == r->rank ? out->n_own++ : out->n; /* those that belong to the rank go first */
		memmove(b + k + 1, b + k, (out->n++ - k) * sizeof(*b));
		b[k] = block;
	}
	if (held != uns_shape_elems(&out->shape))
		return does_not_cover(r, (int64_t)r->rank, uns_num(uns_shape_elems(&out->shape)), uns_num(held), err);
	return 0;
}

/* -- one parameter -- */

/* Blocks of different ranks are apart, and together they are the parameter. */
static int check_cover(struct reading *r, const struct uns_zero_cut_up *p, size_t n_ranks, struct uns_err *err)
{
	uint64_t held = 0;
	size_t q, i, k;

	for (r->rank = 0; r->rank < n_ranks; r->rank++)
		for (i = 0; i < p->slice[r->rank].n_own; i++) {
			const struct uns_box *box = &p->slice[r->rank].block[i].whole;

			held += uns_box_elems(box);
			for (q = 0; q < r->rank; q++)
				for (k = 0; k < p->slice[q].n_own; k++)
					if (uns_box_overlap(box, &p->slice[q].block[k].whole))
						return holds_twice(r, q, err);
		}
	if (held != uns_shape_elems(&p->whole))
		return does_not_cover(r, -1, uns_num(uns_shape_elems(&p->whole)), uns_num(held), err);
	return 0;
}

static int read_param(struct reading *r, const struct uns_value *v, size_t n_ranks, struct uns_zero_cut_up **out,
		      struct uns_err *err)
{
	const struct uns_value *ranks = uns_value_get(v, "ranks"), *one;
	struct uns_zero_cut_up *p = UNS_NEW(r->arena, struct uns_zero_cut_up);
	size_t n = 0;

	UNS_TRY_ALLOC(p, err);
	r->rank = 0;
	if (!read_shape(uns_value_get(v, "logical_shape"), &p->whole))
		return not_understood(r, "it has no shape", err);
	UNS_TRY_ALLOC(p->slice = UNS_NEW_N(r->arena, struct uns_zero_slice, n_ranks), err);
	for (; r->rank < n_ranks; r->rank++) {
		one = uns_value_get_number(ranks, r->rank);
		if (!one)
			return does_not_cover(r, (int64_t)r->rank, uns_str(NULL), uns_str(NULL), err);
		UNS_TRY(read_slice(r, one, &p->whole, &p->slice[r->rank], err));
		n += p->slice[r->rank].n;
		if (n > MAX_BLOCKS)
			return not_understood(r, "it is in too many pieces", err);
	}
	*out = p;
	return check_cover(r, p, n_ranks, err);
}

/* "^blocks\.0\.weight$" -> "blocks.0.weight"; NULL: a pattern that is no single name. */
static const char *name_of(struct uns_arena *arena, const char *pattern)
{
	size_t len = pattern ? strlen(pattern) : 0, n = 0, i;
	char *out = UNS_NEW_N(arena, char, len + 1);

	if (!out || len < 2 || pattern[0] != '^' || pattern[len - 1] != '$')
		return NULL;
	for (i = 1; i < len - 1; i++) {
		if (pattern[i] == '\\')
			i++;
		else if (strchr(".*+?[](){}|^$", pattern[i]))
			return NULL;
		out[n++] = pattern[i];
	}
	return out;
}

/* DeepSpeed lists the parameters whose cut it could not describe. */
static int check_described(struct reading *r, const struct uns_value *info, struct uns_err *err)
{
	const struct uns_value *list = uns_value_get(info, "autotp_unsupported_parameter_patterns");
	const char *cause;

	if (!list || list->kind != UNS_VALUE_DICT || !list->n)
		return 0;
	r->name = uns_value_str(list->pair[0].key);
	cause = uns_value_str(list->pair[0].value);
	return not_understood(r, cause ? cause : "DeepSpeed could not describe the cut", err);
}

/* {version, params: {name: map}}. patterns: names are regular expressions. */
static int read_maps(struct reading *r, const struct uns_value *map, bool patterns, struct uns_zero_slices *out,
		     struct uns_err *err)
{
	const struct uns_value *params = uns_value_get(map, "params");
	struct uns_zero_cut_up *p;
	uint64_t version = MAP_VERSION;
	size_t i;

	uns_value_u64(uns_value_get(map, "version"), &version);
	if (version != MAP_VERSION)
		return UNS_FAIL_WITH(err, ZERO_MAP_VERSION, .scope = UNS_SCOPE_ALL, .file = r->file,
				     .expected = uns_num(MAP_VERSION), .found = uns_num(version),
				     .arg = { { "by", uns_str(r->by) } });
	for (i = 0; i < params->n; i++) {
		r->name = uns_value_str(params->pair[i].key);
		if (patterns)
			r->name = name_of(r->arena, r->name);
		if (!r->name)
			continue; /* a parameter without a map is named where one is needed */
		UNS_TRY(read_param(r, params->pair[i].value, out->n_ranks, &p, err));
		UNS_TRY_ALLOC(uns_map_put(&out->by_name, r->name, p, NULL), err);
	}
	return 0;
}

static bool has_maps(const struct uns_value *map)
{
	const struct uns_value *params = uns_value_get(map, "params");

	return params && params->kind == UNS_VALUE_DICT;
}

int uns_zero_slices_read(const struct uns_value *info, const char *file, size_t n_ranks, struct uns_arena *arena,
			 struct uns_zero_slices *out, struct uns_err *err)
{
	const struct uns_value *map = uns_value_get(info, "affine_map");
	struct reading r = { .file = file, .arena = arena, .by = "tensor parallelism" };

	*out = (struct uns_zero_slices){ .n_ranks = n_ranks };
	if (!has_maps(map))
		return UNS_FAIL_WITH(err, ZERO_TENSOR_PARALLEL, .scope = UNS_SCOPE_ALL,
				     .arg = { { "n", uns_num(n_ranks) } });
	UNS_TRY(check_described(&r, info, err));
	return read_maps(&r, map, true, out, err);
}

int uns_zero_slices_read_experts(const struct uns_value *map, const char *file, struct uns_arena *arena,
				 struct uns_zero_slices *out, struct uns_err *err)
{
	struct reading r = { .file = file, .arena = arena, .by = "AutoEP" };

	if (!has_maps(map))
		return UNS_FAIL_WITH(err, ZERO_AUTOEP, .scope = UNS_SCOPE_ALL, .file = file,
				     .arg = { { "cause", uns_str("it records no maps of how") } });
	return read_maps(&r, map, false, out, err);
}

/* -- comparing -- */

static bool same_cut(const struct uns_zero_cut_up *a, const struct uns_zero_cut_up *b, size_t n_ranks)
{
	size_t r, i;

	if (!a || !b || !uns_shape_equal(&a->whole, &b->whole))
		return false;
	for (r = 0; r < n_ranks; r++) {
		const struct uns_zero_slice *x = &a->slice[r], *y = &b->slice[r];

		if (!uns_shape_equal(&x->shape, &y->shape) || x->n != y->n || x->n_own != y->n_own)
			return false;
		for (i = 0; i < x->n; i++)
			if (!uns_box_equal(&x->block[i].whole, &y->block[i].whole) ||
			    !uns_box_equal(&x->block[i].slice, &y->block[i].slice))
				return false;
	}
	return true;
}

int uns_zero_slices_compare(const struct uns_zero_slices *a, const char *a_file, const struct uns_zero_slices *b,
			    const char *b_file, size_t b_rank, struct uns_err *err)
{
	const char *name;
	void *cut;
	size_t at = 0;

	while (uns_map_next(&a->by_name, &at, &name, &cut))
		if (!same_cut(cut, uns_zero_cut_find(b, name), a->n_ranks))
			return UNS_FAIL_WITH(err, ZERO_MAPS_DIFFER, .scope = UNS_SCOPE_ALL, .file = b_file,
					     .tensor = name, .rank = uns_num(b_rank),
					     .arg = { { "other_file", uns_str(a_file) } });
	return 0;
}

/* -- what files hold -- */

int uns_zero_cut_get(const struct uns_zero_slices *slices, const char *name, const char *file, int32_t rank,
		     const struct uns_zero_cut_up **out, struct uns_err *err)
{
	*out = uns_zero_cut_find(slices, name);
	if (*out)
		return 0;
	return UNS_FAIL_WITH(err, ZERO_SLICE_UNMAPPED, .scope = UNS_SCOPE_ALL, .file = file, .tensor = name,
			     .rank = uns_rank(rank));
}

int uns_zero_slice_check(const struct uns_zero_slice *slice, const struct uns_shape *shape, const char *file,
			 const char *name, int32_t rank, struct uns_err *err)
{
	char found[128], want[128];

	if (uns_shape_equal(&slice->shape, shape))
		return 0;
	return UNS_FAIL_WITH(err, ZERO_SLICE_SHAPE, .scope = UNS_SCOPE_ALL, .file = file, .tensor = name,
			     .rank = uns_rank(rank), .found = uns_str(uns_shape_text(shape, found, sizeof(found))),
			     .expected = uns_str(uns_shape_text(&slice->shape, want, sizeof(want))));
}

int uns_zero_slice_absent(const char *file, const char *name, int32_t rank, struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_SLICE_ABSENT, .scope = UNS_SCOPE_ALL, .file = file, .tensor = name,
			     .rank = uns_rank(rank));
}
