/* Merging what ranks say about a tensor: equal type and global shape, or a problem that names both
 * files. A plain tensor that several ranks hold is taken for copies only while nothing speaks
 * against it: equal shapes, and equal CRCs where they are recorded. */
#include "shards/rank_merge.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/dtensor.h"

enum { MAX_PROBLEMS = 16 };

struct part {
	struct uns_piece piece;
	struct part *next;
};

struct uns_merged {
	struct uns_tensor tensor;
	const char *path; /* of the file that had it first */
	const char *differs; /* the first file whose plain copy has another CRC; NULL = none */
	bool sharded;
	uint32_t crc; /* of the first plain copy's whole storage; 0 = cannot be compared */
	struct part *first, *last;
	struct uns_merged *next;
	uint32_t index; /* in the catalog, once there */
};

static int no_memory(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory while reading rank files");
}

void uns_rank_merge_init(struct uns_rank_merge *m, struct uns_catalog *cat, enum uns_scope scope)
{
	*m = (struct uns_rank_merge){ .cat = cat, .scope = scope };
}

void uns_rank_merge_fini(struct uns_rank_merge *m)
{
	uns_map_fini(&m->by_key);
	uns_arena_fini(&m->scratch);
}

/* -- problems -- */

/* A sentence about one tensor; after a few they repeat themselves. */
__attribute__((format(printf, 3, 4))) static int complain(struct uns_rank_merge *m, int code,
							   const char *fmt, ...)
{
	struct uns_err text = { 0 };
	va_list ap;

	if (m->n_problems++ >= MAX_PROBLEMS)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	return uns_catalog_add_problem(m->cat, m->scope, code, "%s", text.text);
}

static const char *dtype_text(const struct uns_tensor *t)
{
	return uns_dtype_info(t->dtype)->torch;
}

/* -- one rank's view of a tensor -- */

/* Type, global shape and pieces, as one file says. */
struct view {
	struct uns_tensor tensor;
	struct part *first, **tail;
	bool sharded;
	uint32_t crc;
};

static struct uns_shape shape_of(const uint64_t *dims, size_t n)
{
	struct uns_shape shape = { .n = (uint32_t)n };

	memcpy(shape.dim, dims, n * sizeof(*dims));
	return shape;
}

static bool has_elements(const uint64_t *len, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (len[i] == 0)
			return false;
	return true;
}

/* Bytes from the first element of a box to behind its last; inside the storage, hence no overflow. */
static uint64_t reach_bytes(const struct uns_torch_tensor *local, const uint64_t *len)
{
	uint64_t elems = 1;
	size_t i;

	for (i = 0; i < local->n_dims; i++)
		elems += (len[i] - 1) * local->stride_elems[i];
	return elems * uns_dtype_size(local->dtype);
}

static bool is_c_order(const struct uns_torch_tensor *local, const uint64_t *len)
{
	uint64_t want = 1;
	size_t i;

	for (i = local->n_dims; i-- > 0;) {
		if (len[i] != 1 && local->stride_elems[i] != want)
			return false;
		want *= len[i];
	}
	return true;
}

/* Add the box [lo, lo + len) of the full tensor, which starts `skip` elements into dimension `dim`
 * of the local tensor. */
static int add_box(struct uns_rank_merge *m, const struct uns_rank_source *source,
		   const struct uns_torch_tensor *local, const uint64_t *lo, const uint64_t *len,
		   size_t dim, uint64_t skip, struct view *out, struct uns_err *err)
{
	struct part *part = UNS_NEW(&m->scratch, struct part);
	uint64_t *strides, first = local->first_elem;

	if (!part)
		return no_memory(err);
	if (skip)
		first += skip * local->stride_elems[dim];
	part->piece = (struct uns_piece){
		.kind = UNS_PIECE_BOX,
		.box = { .n = (uint32_t)local->n_dims },
		.file = source->file,
		.rank = source->rank,
		.container = UNS_RAW,
		.offset_bytes = local->data_bytes + first * uns_dtype_size(local->dtype),
		.length_bytes = reach_bytes(local, len),
	};
	if (local->n_dims) {
		memcpy(part->piece.box.lo, lo, local->n_dims * sizeof(*lo));
		memcpy(part->piece.box.len, len, local->n_dims * sizeof(*len));
	}
	if (!is_c_order(local, len)) {
		strides = UNS_NEW_N(&m->cat->arena, uint64_t, local->n_dims);
		if (!strides)
			return no_memory(err);
		memcpy(strides, local->stride_elems, local->n_dims * sizeof(*strides));
		part->piece.stride_elems = strides;
	}
	if (!part->piece.stride_elems && part->piece.offset_bytes == local->data_bytes &&
	    part->piece.length_bytes == local->storage_bytes)
		part->piece.crc32 = local->crc32; /* of the whole record, which it is */
	*out->tail = part;
	out->tail = &part->next;
	return 0;
}

/* Extents of the local tensor as the boxes want them. */
static struct uns_shape expected_local(const struct uns_local_shard *shard, size_t n_dims)
{
	struct uns_shape shape = shape_of(shard->len[0], n_dims);
	size_t k;

	for (k = 1; k < shard->n_boxes; k++)
		shape.dim[shard->split_dim] += shard->len[k][shard->split_dim];
	return shape;
}

static int check_local(const struct uns_local_shard *shard, const struct uns_torch_tensor *local,
		       const struct uns_sharded_tensor *whole, struct uns_err *err)
{
	struct uns_shape want = expected_local(shard, whole->n_dims);
	struct uns_shape found = shape_of(local->dims, local->n_dims);
	char a[128], b[128];

	if (local->dtype != whole->dtype)
		return uns_fail(err, -EBADMSG, "its data are %s, but it is declared as %s",
				uns_dtype_info(local->dtype)->torch,
				uns_dtype_info(whole->dtype)->torch);
	if (uns_shape_equal(&want, &found) ||
	    (!has_elements(want.dim, want.n) && !has_elements(found.dim, found.n)))
		return 0;
	return uns_fail(err, -EBADMSG, "this rank holds a part of shape %s; expected %s",
			uns_shape_text(&found, a, sizeof(a)), uns_shape_text(&want, b, sizeof(b)));
}

static int view_shard(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      const struct uns_local_shard *shard, const struct uns_sharded_tensor *whole,
		      struct view *out, struct uns_err *err)
{
	struct uns_torch_tensor local;
	uint64_t skip = 0;
	size_t k;

	UNS_TRY(uns_torch_tensor(source->torch, shard->tensor, &local, err));
	UNS_TRY(check_local(shard, &local, whole, err));
	for (k = 0; k < shard->n_boxes; k++) {
		if (has_elements(shard->len[k], whole->n_dims))
			UNS_TRY(add_box(m, source, &local, shard->lo[k], shard->len[k],
					shard->split_dim, skip, out, err));
		skip += shard->len[k][shard->split_dim];
	}
	return 0;
}

/* Pieces are placed by what the content says; the file's name matters to others (RNG states). */
static int tell_rank(struct uns_rank_merge *m, struct uns_rank_source *source, int64_t rank)
{
	if (source->told_rank || rank < 0 || source->rank < 0 || rank == source->rank)
		return 0;
	source->told_rank = true;
	return uns_catalog_add_problem(m->cat, UNS_SCOPE_NOTE, 0,
				       "%s was written by rank %lld, which its name denies; its "
				       "tensors are placed by what it records",
				       source->path, (long long)rank);
}

static int view_sharded(struct uns_rank_merge *m, struct uns_rank_source *source,
			const struct uns_value *v, struct view *out, struct uns_err *err)
{
	struct uns_sharded_tensor whole;
	size_t i;

	UNS_TRY(uns_dtensor_parse(source->torch, v, source->rank, &m->scratch, &whole, err));
	out->sharded = true;
	out->tensor.dtype = whole.dtype;
	out->tensor.shape = shape_of(whole.dims, whole.n_dims);
	UNS_TRY(uns_shape_check(&out->tensor.shape, whole.dtype, err));
	for (i = 0; i < whole.n_shards; i++)
		UNS_TRY(view_shard(m, source, &whole.shard[i], &whole, out, err));
	return tell_rank(m, source, whole.rank);
}

static int view_plain(struct uns_rank_merge *m, struct uns_rank_source *source,
		      const struct uns_value *v, struct view *out, struct uns_err *err)
{
	static const uint64_t zeros[UNS_MAX_DIMS];
	struct uns_torch_tensor local;

	UNS_TRY(uns_torch_tensor(source->torch, v, &local, err));
	out->tensor.dtype = local.dtype;
	out->tensor.shape = shape_of(local.dims, local.n_dims);
	UNS_TRY(uns_shape_check(&out->tensor.shape, local.dtype, err));
	if (!has_elements(local.dims, local.n_dims))
		return 0;
	if (local.contiguous && reach_bytes(&local, local.dims) == local.storage_bytes)
		out->crc = local.crc32;
	return add_box(m, source, &local, zeros, local.dims, 0, 0, out, err);
}

static int view_open(struct uns_rank_merge *m, struct uns_rank_source *source,
		     const struct uns_value *v, struct view *out, struct uns_err *err)
{
	const struct part *part;

	out->tail = &out->first;
	if (uns_dtensor_is(v))
		UNS_TRY(view_sharded(m, source, v, out, err));
	else
		UNS_TRY(view_plain(m, source, v, out, err));
	for (part = out->first; part; part = part->next)
		UNS_TRY(uns_piece_check(&out->tensor.shape, out->tensor.dtype, &part->piece, err));
	return 0;
}

/* -- merging -- */

/* The strings that came with the tensor live only as long as its file is open. */
static bool keep_strings(struct uns_arena *arena, struct uns_tensor *t)
{
	t->key = uns_arena_str(arena, t->key);
	t->name = uns_arena_str(arena, t->name);
	if (t->state)
		t->state = uns_arena_str(arena, t->state);
	return t->key && t->name;
}

static int merge_new(struct uns_rank_merge *m, const struct uns_rank_source *source,
		     const struct view *view, struct uns_err *err)
{
	struct uns_merged *t = UNS_NEW(&m->scratch, struct uns_merged);

	if (!t)
		return no_memory(err);
	t->tensor = view->tensor;
	if (!keep_strings(&m->cat->arena, &t->tensor) ||
	    !uns_map_put(&m->by_key, t->tensor.key, t, NULL))
		return no_memory(err);
	t->path = source->path;
	t->sharded = view->sharded;
	t->crc = view->crc;
	t->first = view->first;
	for (t->last = t->first; t->last && t->last->next;)
		t->last = t->last->next;
	m->n_sharded += view->sharded;
	if (m->last)
		m->last->next = t;
	else
		m->first = t;
	m->last = t;
	return 0;
}

static int merge_into(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      const struct view *view, struct uns_merged *t)
{
	const struct uns_tensor *a = &t->tensor, *b = &view->tensor;
	char x[128], y[128];

	if (a->dtype != b->dtype)
		return complain(m, -EBADMSG, "%s: %s is %s there, but %s in %s", source->path,
				a->key, dtype_text(b), dtype_text(a), t->path);
	if (!uns_shape_equal(&a->shape, &b->shape) || t->sharded != view->sharded)
		return complain(m, -EBADMSG, "%s: %s is a %s tensor of shape %s there, but a %s one "
					     "of shape %s in %s",
				source->path, a->key, view->sharded ? "sharded" : "plain",
				uns_shape_text(&b->shape, x, sizeof(x)),
				t->sharded ? "sharded" : "plain",
				uns_shape_text(&a->shape, y, sizeof(y)), t->path);
	if (!t->differs && t->crc && view->crc && t->crc != view->crc)
		t->differs = source->path;
	if (t->last)
		t->last->next = view->first;
	else
		t->first = view->first;
	for (; (t->last ? t->last->next : t->first);)
		t->last = t->last ? t->last->next : t->first;
	return 0;
}

int uns_rank_merge_add(struct uns_rank_merge *m, struct uns_rank_source *source,
		       const struct uns_tensor *like, const struct uns_value *v,
		       struct uns_err *err)
{
	struct view view = { .tensor = *like };
	struct uns_merged *known;
	struct uns_err why = { 0 };
	int code = view_open(m, source, v, &view, &why);

	if (code == -ENOMEM)
		return uns_fail(err, code, "%s", why.text);
	if (code < 0)
		return complain(m, code, "%s: %s: %s", source->path, like->key, why.text);
	view.tensor.group = view.tensor.position = -1;
	view.tensor.alias_of = UNS_NONE;
	known = uns_map_get(&m->by_key, like->key);
	return known ? merge_into(m, source, &view, known) : merge_new(m, source, &view, err);
}

/* -- into the catalog -- */

/* Buffers and step counters may differ between ranks, and then rank 0's is what a full state dict
 * holds. Other plain tensors that differ are parts cut by a rule that nothing here records. */
static int judge_copies(struct uns_rank_merge *m, const struct uns_merged *t)
{
	bool may_differ = t->tensor.role == UNS_ROLE_STEP ||
			  (t->tensor.role == UNS_ROLE_WEIGHT && m->n_sharded);

	if (!t->differs)
		return 0;
	if (may_differ)
		return uns_catalog_add_problem(m->cat, UNS_SCOPE_NOTE, 0,
					       "%s differs between ranks; it is taken from %s, not %s",
					       t->tensor.key, t->path, t->differs);
	return complain(m, -ENOTSUP,
			"%s: %s differs from the tensor of that name and shape in %s, and neither "
			"says which part of the whole it is",
			t->differs, t->tensor.key, t->path);
}

static bool same_piece(const struct uns_piece *a, const struct uns_piece *b)
{
	size_t n = a->box.n * sizeof(a->box.lo[0]);

	return a->file == b->file && a->offset_bytes == b->offset_bytes &&
	       a->length_bytes == b->length_bytes && a->box.n == b->box.n &&
	       memcmp(a->box.lo, b->box.lo, n) == 0 && memcmp(a->box.len, b->box.len, n) == 0 &&
	       !a->stride_elems == !b->stride_elems &&
	       (!a->stride_elems || memcmp(a->stride_elems, b->stride_elems, n) == 0);
}

static bool same_bytes(const struct uns_merged *a, const struct uns_merged *b)
{
	const struct part *p = a->first, *q = b->first;

	if (a->tensor.dtype != b->tensor.dtype ||
	    !uns_shape_equal(&a->tensor.shape, &b->tensor.shape))
		return false;
	for (; p && q; p = p->next, q = q->next)
		if (!same_piece(&p->piece, &q->piece))
			return false;
	return !p && !q;
}

/* Tied weights are saved as one storage with two names. */
static int find_alias(struct uns_rank_merge *m, struct uns_map *by_place, struct uns_merged *t,
		      struct uns_err *err)
{
	const struct uns_merged *other;
	char *place;

	if (!t->first || t->tensor.role != UNS_ROLE_WEIGHT)
		return 0;
	place = uns_arena_printf(&m->scratch, "%u %llu", t->first->piece.file,
				 (unsigned long long)t->first->piece.offset_bytes);
	if (!place)
		return no_memory(err);
	other = uns_map_get(by_place, place);
	if (other && same_bytes(other, t))
		t->tensor.alias_of = other->index;
	else if (!other && !uns_map_put(by_place, place, t, NULL))
		return no_memory(err);
	return 0;
}

static int emit_tensor(struct uns_rank_merge *m, struct uns_merged *t, struct uns_err *err)
{
	const struct part *part;

	UNS_TRY(uns_catalog_add_tensor(m->cat, &t->tensor, &t->index, err));
	for (part = t->first; part; part = part->next)
		UNS_TRY(uns_catalog_add_piece(m->cat, &part->piece, err));
	return 0;
}

int uns_rank_merge_emit(struct uns_rank_merge *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_place = UNS_MAP_INIT;
	struct uns_merged *t;

	for (t = m->first; t; t = t->next) {
		UNS_TRY(find_alias(m, &by_place, t, err));
		UNS_TRY(emit_tensor(m, t, err));
		UNS_TRY(judge_copies(m, t));
	}
	if (m->n_problems > MAX_PROBLEMS)
		return uns_catalog_add_problem(m->cat, m->scope, -EBADMSG,
					       "%zu more tensors have problems like these",
					       m->n_problems - MAX_PROBLEMS);
	return 0;
}

/* -- parameters -- */

static bool same_content(const struct uns_merged *a, const struct uns_merged *b)
{
	const struct part *p = a->first, *q = b->first;
	size_t n;

	if (a->tensor.dtype != b->tensor.dtype ||
	    !uns_shape_equal(&a->tensor.shape, &b->tensor.shape))
		return false;
	for (; p && q; p = p->next, q = q->next) {
		n = p->piece.box.n * sizeof(p->piece.box.lo[0]);
		if (!p->piece.crc32 || p->piece.crc32 != q->piece.crc32 ||
		    memcmp(p->piece.box.lo, q->piece.box.lo, n) != 0 ||
		    memcmp(p->piece.box.len, q->piece.box.len, n) != 0)
			return false;
	}
	return !p && !q;
}

/* Vectors are left out: many are all zeros or ones. */
static int find_twin(struct uns_rank_merge *m, struct uns_map *by_crc, struct uns_merged *t,
		     bool *is_twin)
{
	const struct uns_merged *other;
	char *key;

	*is_twin = false;
	if (!t->first || t->tensor.shape.n < 2)
		return 0;
	key = uns_arena_printf(&m->scratch, "%u", t->first->piece.crc32);
	if (!key)
		return -ENOMEM;
	other = uns_map_get(by_crc, key);
	*is_twin = other && same_content(other, t);
	return other || uns_map_put(by_crc, key, t, NULL) ? 0 : -ENOMEM;
}

static bool is_param(const struct uns_rank_merge *m, const struct uns_merged *t)
{
	return uns_dtype_info(t->tensor.dtype)->is_float && (t->sharded || !m->n_sharded) &&
	       t->tensor.alias_of == UNS_NONE;
}

int uns_rank_merge_each_param(struct uns_rank_merge *m,
			      int (*visit)(void *ctx, const struct uns_tensor *t, bool twin),
			      void *ctx)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_crc = UNS_MAP_INIT;
	struct uns_merged *t;
	bool is_twin;

	for (t = m->first; t; t = t->next) {
		if (!is_param(m, t))
			continue;
		UNS_TRY(find_twin(m, &by_crc, t, &is_twin));
		UNS_TRY(visit(ctx, &t->tensor, is_twin));
	}
	return 0;
}
