/* DTensor: the local tensor is a part that follows from the placements on a device mesh, by torch.chunk's rule; no
 * offset is recorded. ShardedTensor: offsets are recorded. What changed between torch versions are
 * the classes' modules and how the mesh is described:
 *
 *   2.1 - 2.8    mesh: a tensor of ranks; its shape is the mesh's
 *   later        _layout: per axis a shape (several numbers multiply), _rank_map: the ranks
 *
 * Source: files of torch 2.0.1, 2.1.2, 2.2.2, 2.4.1, 2.6.0 and 2.13; torch/distributed/tensor. */
#include "ranks/dtensor.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/path.h"

enum { MAX_SPLIT_FACTOR = 256, MAX_MESH_RANKS = 1 << 20 };

struct mesh {
	size_t n;
	uint64_t size[UNS_MAX_DIMS], coord[UNS_MAX_DIMS];
	bool outside; /* this rank is not in the mesh */
};

enum placement_kind { SHARD, STRIDED, REPLICATE };

/* What mesh dimension i does to the tensor. */
struct placement {
	enum placement_kind kind;
	size_t dim;            /* of the tensor */
	uint64_t split_factor; /* STRIDED: into how many parts the tensor was cut before */
};

struct plan {
	struct mesh mesh;
	struct placement placement[UNS_MAX_DIMS];
	size_t order[UNS_MAX_DIMS]; /* in which mesh dimensions with kind SHARD apply */
	size_t n_order;
};

/* -- what is it -- */

static bool is_class(const struct uns_value *v, const char *name)
{
	return v && v->cls && uns_str_starts(v->cls, "torch.distributed.") &&
	       strcmp(strrchr(v->cls, '.') + 1, name) == 0;
}

static const struct uns_value *wrapper_class(const struct uns_value *v)
{
	if (!v || v->kind != UNS_VALUE_OBJECT || !uns_value_is(v, "torch._tensor._rebuild_from_type_v2"))
		return NULL;
	return uns_value_at(v->object.args, 1);
}

bool uns_dtensor_is(const struct uns_value *v)
{
	const struct uns_value *cls = wrapper_class(v);

	return is_class(cls, "DTensor") || is_class(cls, "ShardedTensor");
}

static const struct uns_value *field_of_state(const struct uns_value *state, const char *name)
{
	struct uns_value object = { .kind = UNS_VALUE_OBJECT, .state = state };

	return uns_value_field(&object, name);
}

static int parse_dims(const struct uns_value *v, uint64_t *dims, size_t *n, struct uns_err *err)
{
	if (uns_value_dims(v, dims, UNS_MAX_DIMS, n))
		return 0;
	return uns_fail(err, -ENOTSUP, "the global shape of a sharded tensor is not a list of up to %d counts",
			UNS_MAX_DIMS);
}

/* _rebuild_wrapper_subclass's (class, dtype, size, stride, ...). */
static int parse_wrapper(const struct uns_value *v, struct uns_sharded_tensor *out, struct uns_err *err)
{
	const struct uns_value *args = uns_value_at(v->object.args, 2);
	const struct uns_value *dtype = uns_value_at(args, 1);

	UNS_TRY(parse_dims(uns_value_at(args, 2), out->dims, &out->n_dims, err));
	out->dtype = dtype && dtype->kind == UNS_VALUE_GLOBAL ? uns_dtype_of_torch(dtype->cls) : UNS_DTYPE_NONE;
	if (out->dtype == UNS_DTYPE_NONE)
		return uns_fail(err, -ENOTSUP, "a sharded tensor of unknown dtype %s",
				dtype && dtype->cls ? dtype->cls : "(none)");
	out->mesh_size = out->rank = -1;
	return 0;
}

static bool same_dims(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b)
{
	return n_a == n_b && memcmp(a, b, n_a * sizeof(*a)) == 0;
}

/* -- the mesh -- */

/* The product of a number or of a tuple of numbers; () is 1. */
static bool parse_axis(const struct uns_value *shape, uint64_t *out)
{
	uint64_t dims[UNS_MAX_DIMS];
	size_t n, i;

	if (uns_value_u64(shape, out))
		return true;
	if (!uns_value_dims(shape, dims, UNS_MAX_DIMS, &n))
		return false;
	for (*out = 1, i = 0; i < n; i++)
		if (!uns_u64_mul(*out, dims[i], out))
			return false;
	return true;
}

static bool parse_layout(const struct uns_value *layout, struct mesh *mesh)
{
	const struct uns_value *axes = uns_value_field(layout, "axes"), *axis;
	const struct uns_value *shape = uns_value_field(layout, "shape");

	for (mesh->n = 0; (axis = uns_value_at(axes ? axes : shape, mesh->n)); mesh->n++)
		if (mesh->n == UNS_MAX_DIMS ||
		    !parse_axis(axes ? uns_value_field(axis, "shape") : axis, &mesh->size[mesh->n]))
			return false;
	if (!axes && mesh->n == 0) /* a layout of one dimension may spell its shape as a number */
		return parse_axis(shape, &mesh->size[mesh->n++]);
	return mesh->n > 0;
}

/* The mesh tensor's shape, without reading its data. */
static bool parse_mesh_tensor(const struct uns_value *tensor, struct mesh *mesh)
{
	return uns_torch_is_tensor(tensor) &&
	       uns_value_dims(uns_value_at(tensor->object.args, 2), mesh->size, UNS_MAX_DIMS, &mesh->n);
}

static int count_mesh(const struct mesh *mesh, int64_t *out, struct uns_err *err)
{
	uint64_t n = 1;
	size_t i;

	for (i = 0; i < mesh->n; i++)
		if (mesh->size[i] == 0 || !uns_u64_mul(n, mesh->size[i], &n) || n > MAX_MESH_RANKS)
			return uns_fail(err, -ENOTSUP, "a device mesh without ranks or with more than %d",
					MAX_MESH_RANKS);
	*out = (int64_t)n;
	return 0;
}

static bool parse_coord(const struct uns_value *coord, struct mesh *mesh)
{
	size_t n, i;

	if (!uns_value_dims(coord, mesh->coord, UNS_MAX_DIMS, &n) || n != mesh->n)
		return false;
	for (i = 0; i < n; i++)
		if (mesh->coord[i] >= mesh->size[i])
			return false;
	return true;
}

/* The rank number at element `at` of an integer tensor. */
static int read_rank(const struct uns_torchfile *file, const struct uns_torch_tensor *t, uint64_t at, uint64_t *out,
		     struct uns_err *err)
{
	unsigned size = uns_dtype_size(t->dtype);
	uint8_t bytes[8];

	if (t->dtype != UNS_I32 && t->dtype != UNS_I64)
		return uns_fail(err, -ENOTSUP, "a device mesh that is not made of integers");
	UNS_TRY(uns_reader_pread(file->r, bytes, size, t->data_bytes + at * size, err));
	*out = uns_le(bytes, size);
	return 0;
}

/* Element k, in C order, of a tensor that may have any strides; leaves its index in `coord`. */
static uint64_t element_at(const struct uns_torch_tensor *t, uint64_t k, uint64_t *coord)
{
	uint64_t at = t->first_elem;
	size_t i;

	for (i = t->n_dims; i-- > 0; k /= t->dims[i]) {
		coord[i] = k % t->dims[i];
		at += coord[i] * t->stride_elems[i];
	}
	return at;
}

/* Look the file's rank up in the mesh tensor: only for pickles without the coordinate. */
static int find_coord(const struct uns_torchfile *file, const struct uns_value *tensor, int64_t file_rank,
		      uint64_t n_ranks, struct mesh *mesh, struct uns_err *err)
{
	struct uns_torch_tensor t;
	uint64_t k, rank = 0;

	if (file_rank < 0 || !uns_torch_is_tensor(tensor))
		return uns_fail(err, -ENOTSUP, "a DTensor that does not record its place in the device mesh");
	UNS_TRY(uns_torch_tensor(file, tensor, &t, err));
	if (!same_dims(t.dims, t.n_dims, mesh->size, mesh->n))
		return uns_fail(err, -EBADMSG, "a device mesh that does not fit its own ranks");
	for (k = 0; k < n_ranks; k++) {
		UNS_TRY(read_rank(file, &t, element_at(&t, k, mesh->coord), &rank, err));
		if (rank == (uint64_t)file_rank)
			return 0;
	}
	mesh->outside = true;
	return 0;
}

static int parse_mesh(const struct uns_torchfile *file, const struct uns_value *v, int64_t file_rank, struct mesh *mesh,
		      struct uns_sharded_tensor *out, struct uns_err *err)
{
	const struct uns_value *tensor = uns_value_field(v, "mesh");
	const struct uns_value *coord = uns_value_field(v, "_coordinate_on_dim");

	if (!is_class(v, "DeviceMesh") ||
	    (!parse_mesh_tensor(tensor, mesh) && !parse_layout(uns_value_field(v, "_layout"), mesh)))
		return uns_fail(err, -ENOTSUP, "a DTensor whose device mesh has no known form");
	UNS_TRY(count_mesh(mesh, &out->mesh_size, err));
	out->n_mesh = mesh->n;
	memcpy(out->mesh, mesh->size, sizeof(out->mesh));
	if (!uns_value_int(uns_value_field(v, "_rank"), &out->rank))
		out->rank = -1;
	if (!coord)
		return find_coord(file, tensor, file_rank, (uint64_t)out->mesh_size, mesh, err);
	mesh->outside = coord->kind == UNS_VALUE_NONE;
	if (!mesh->outside && !parse_coord(coord, mesh))
		return uns_fail(err, -EBADMSG, "a DTensor's coordinate is outside its device mesh");
	return 0;
}

/* -- placements -- */

/* A field of the object's state, or its first argument. */
static const struct uns_value *field_or_arg(const struct uns_value *v, const char *name, size_t arg)
{
	const struct uns_value *field = uns_value_field(v, name);

	return field || !v || v->kind != UNS_VALUE_OBJECT ? field : uns_value_at(v->object.args, arg);
}

static int parse_placement(const struct uns_value *v, size_t n_dims, struct placement *out, struct uns_err *err)
{
	int64_t dim;

	*out = (struct placement){ .kind = REPLICATE };
	if (is_class(v, "Replicate"))
		return 0;
	if (!is_class(v, "Shard") && !is_class(v, "_StridedShard"))
		return uns_fail(err, -ENOTSUP,
				"a DTensor with the placement %s, which does not record where its data are",
				v && v->cls ? v->cls : "(none)");
	out->kind = is_class(v, "Shard") ? SHARD : STRIDED;
	if (!uns_value_int(field_or_arg(v, "dim", 0), &dim) || dim < -(int64_t)n_dims || dim >= (int64_t)n_dims)
		return uns_fail(err, -EBADMSG, "a DTensor sharded along a dimension that it does not have");
	out->dim = (size_t)(dim < 0 ? dim + (int64_t)n_dims : dim);
	if (out->kind == STRIDED &&
	    (!uns_value_u64(field_or_arg(v, "split_factor", 1), &out->split_factor) || out->split_factor == 0))
		return uns_fail(err, -EBADMSG, "a strided shard without a split factor");
	return 0;
}

static int parse_placements(const struct uns_value *list, size_t n_dims, struct plan *plan, struct uns_err *err)
{
	size_t i;

	if (uns_value_at(list, plan->mesh.n) || !uns_value_at(list, plan->mesh.n - 1))
		return uns_fail(err, -EBADMSG, "a DTensor without one placement per mesh dimension");
	for (i = 0; i < plan->mesh.n; i++)
		UNS_TRY(parse_placement(uns_value_at(list, i), n_dims, &plan->placement[i], err));
	return 0;
}

static bool in_order(const struct plan *plan, size_t mesh_dim)
{
	size_t i;

	for (i = 0; i < plan->n_order; i++)
		if (plan->order[i] == mesh_dim)
			return true;
	return false;
}

/* ShardOrderEntry(tensor_dim, mesh_dims). */
static bool add_order_entry(const struct uns_value *entry, struct plan *plan)
{
	const struct uns_value *args = entry && entry->kind == UNS_VALUE_OBJECT ? entry->object.args : entry;
	uint64_t tensor_dim, dims[UNS_MAX_DIMS];
	size_t n, i;

	if (!uns_value_u64(uns_value_at(args, 0), &tensor_dim) ||
	    !uns_value_dims(uns_value_at(args, 1), dims, UNS_MAX_DIMS, &n))
		return false;
	for (i = 0; i < n; i++) {
		if (dims[i] >= plan->mesh.n || plan->placement[dims[i]].kind != SHARD ||
		    plan->placement[dims[i]].dim != tensor_dim || in_order(plan, (size_t)dims[i]))
			return false;
		plan->order[plan->n_order++] = (size_t)dims[i];
	}
	return true;
}

/* Mesh dimensions apply from left to right unless the spec has another order. */
static int parse_order(const struct uns_value *order, struct plan *plan, struct uns_err *err)
{
	size_t i;

	for (i = 0; uns_value_at(order, i); i++)
		if (!add_order_entry(uns_value_at(order, i), plan))
			return uns_fail(err, -EBADMSG, "a DTensor whose shard_order contradicts its placements");
	for (i = 0; i < plan->mesh.n; i++)
		if (plan->placement[i].kind == SHARD && !in_order(plan, i))
			plan->order[plan->n_order++] = i;
	return 0;
}

/* -- which part the local tensor is -- */

/* Part c of w of [*lo, *lo + *len), as torch.chunk cuts: ceil(len / w) for all but the last. */
static void chunk(uint64_t *lo, uint64_t *len, uint64_t w, uint64_t c)
{
	uint64_t part = *len / w + (*len % w != 0);
	uint64_t begin = uns_u64_min(part * c, *len), end = uns_u64_min(part * (c + 1), *len);

	*lo += begin;
	*len = end - begin;
}

/* Into how many parts the mesh dimensions right of `at` cut the same tensor dimension. */
static uint64_t parts_right_of(const struct plan *plan, size_t at)
{
	uint64_t n = 1;
	size_t i;

	for (i = at + 1; i < plan->mesh.n; i++)
		if (plan->placement[i].kind != REPLICATE && plan->placement[i].dim == plan->placement[at].dim)
			n *= plan->mesh.size[i];
	return n;
}

static int new_boxes(struct uns_arena *arena, size_t n, struct uns_local_shard *shard, struct uns_err *err)
{
	shard->lo = uns_arena_alloc(arena, n, sizeof(*shard->lo));
	shard->len = uns_arena_alloc(arena, n, sizeof(*shard->len));
	UNS_TRY_ALLOC(shard->lo && shard->len, err);
	shard->n_boxes = n;
	return 0;
}

/* A strided shard that no inner shard follows: a part of each of split_factor parts, one behind the
 * other in the local tensor. The box so far is boxes[0]. */
static int split_box(const struct plan *plan, size_t at, struct uns_arena *arena, struct uns_local_shard *shard,
		     struct uns_err *err)
{
	uint64_t whole_lo[UNS_MAX_DIMS], whole_len[UNS_MAX_DIMS], n = plan->placement[at].split_factor;
	size_t dim = plan->placement[at].dim, k, used = 0;

	if (shard->n_boxes != 1 || n > MAX_SPLIT_FACTOR)
		return uns_fail(err, -ENOTSUP, "a DTensor with strided shards of split factor %" PRIu64, n);
	memcpy(whole_lo, shard->lo[0], sizeof(whole_lo));
	memcpy(whole_len, shard->len[0], sizeof(whole_len));
	UNS_TRY(new_boxes(arena, (size_t)n, shard, err));
	for (k = 0; k < n; k++) {
		memcpy(shard->lo[used], whole_lo, sizeof(whole_lo));
		memcpy(shard->len[used], whole_len, sizeof(whole_len));
		chunk(&shard->lo[used][dim], &shard->len[used][dim], n, k);
		chunk(&shard->lo[used][dim], &shard->len[used][dim], plan->mesh.size[at], plan->mesh.coord[at]);
		used += shard->len[used][dim] > 0 || k + 1 == n;
	}
	if (used > 1 && shard->len[used - 1][dim] == 0)
		used--;
	shard->n_boxes = used;
	shard->split_dim = dim;
	return 0;
}

/* FSDP shards what tensor parallelism has left. A strided shard comes before (left of) the shards that were
 * applied earlier; its split factor is their number. */
static int place_strided(const struct plan *plan, struct uns_arena *arena, struct uns_local_shard *shard,
			 struct uns_err *err)
{
	size_t i, dim;

	for (i = plan->mesh.n; i-- > 0;) {
		uint64_t parts = parts_right_of(plan, i);

		dim = plan->placement[i].dim;
		if (plan->placement[i].kind != STRIDED)
			continue;
		if (plan->placement[i].split_factor == parts && shard->n_boxes == 1)
			chunk(&shard->lo[0][dim], &shard->len[0][dim], plan->mesh.size[i], plan->mesh.coord[i]);
		else if (parts == 1)
			UNS_TRY(split_box(plan, i, arena, shard, err));
		else
			return uns_fail(err, -ENOTSUP,
					"a DTensor with a strided shard of split factor %" PRIu64 " over %" PRIu64
					" inner shards",
					plan->placement[i].split_factor, parts);
	}
	return 0;
}

static int place_local(const struct plan *plan, struct uns_arena *arena, struct uns_sharded_tensor *out,
		       struct uns_err *err)
{
	struct uns_local_shard *shard = out->shard;
	size_t i;

	UNS_TRY(new_boxes(arena, 1, shard, err));
	memcpy(shard->len[0], out->dims, sizeof(out->dims));
	for (i = 0; i < plan->n_order; i++) {
		size_t at = plan->order[i], dim = plan->placement[at].dim;

		shard->split_dim = dim;
		chunk(&shard->lo[0][dim], &shard->len[0][dim], plan->mesh.size[at], plan->mesh.coord[at]);
	}
	for (i = 0; i < plan->mesh.n; i++)
		out->replicated |= plan->placement[i].kind == REPLICATE && plan->mesh.size[i] > 1;
	return place_strided(plan, arena, shard, err);
}

/* -- the two wrappers -- */

/* TensorMeta(shape, stride, dtype), TensorMetadata(shape, dtype, ...). */
static int check_meta_dtype(const struct uns_value *args, enum uns_dtype want, struct uns_err *err)
{
	const struct uns_value *v;
	enum uns_dtype found;
	size_t i;

	for (i = 1; (v = uns_value_at(args, i)); i++) {
		found = v->kind == UNS_VALUE_GLOBAL ? uns_dtype_of_torch(v->cls) : UNS_DTYPE_NONE;
		if (found != UNS_DTYPE_NONE && found != want)
			return uns_fail(err, -EBADMSG, "it is declared as %s, and as %s in its own tensor_meta",
					uns_dtype_info(want)->torch, uns_dtype_info(found)->torch);
	}
	return 0;
}

static int check_meta(const struct uns_value *meta, const struct uns_sharded_tensor *out, struct uns_err *err)
{
	uint64_t dims[UNS_MAX_DIMS];
	size_t n;

	if (!meta || meta->kind != UNS_VALUE_OBJECT)
		return 0;
	UNS_TRY(parse_dims(uns_value_at(meta->object.args, 0), dims, &n, err));
	if (!same_dims(dims, n, out->dims, out->n_dims))
		return uns_fail(err, -EBADMSG, "a DTensor that records two different global shapes");
	return check_meta_dtype(meta->object.args, out->dtype, err);
}

static int parse_dtensor(const struct uns_torchfile *file, const struct uns_value *state, int64_t file_rank,
			 struct uns_arena *arena, struct uns_sharded_tensor *out, struct uns_err *err)
{
	const struct uns_value *spec = field_of_state(state, "_spec");
	const struct uns_value *local = field_of_state(state, "_local_tensor");
	struct plan plan = { 0 };

	if (!spec || !uns_torch_is_tensor(local))
		return uns_fail(err, -EBADMSG, "a DTensor without its local tensor");
	UNS_TRY(check_meta(uns_value_field(spec, "tensor_meta"), out, err));
	UNS_TRY(parse_mesh(file, uns_value_field(spec, "mesh"), file_rank, &plan.mesh, out, err));
	UNS_TRY(parse_placements(uns_value_field(spec, "placements"), out->n_dims, &plan, err));
	UNS_TRY(parse_order(uns_value_field(spec, "shard_order"), &plan, err));
	if (plan.mesh.outside)
		return 0;
	UNS_TRY_ALLOC(out->shard = UNS_NEW(arena, struct uns_local_shard), err);
	out->n_shards = 1;
	out->shard->tensor = local;
	return place_local(&plan, arena, out, err);
}

static int parse_shard(const struct uns_value *v, const struct uns_sharded_tensor *whole, struct uns_arena *arena,
		       struct uns_local_shard *out, struct uns_err *err)
{
	const struct uns_value *meta = uns_value_field(v, "metadata");
	size_t n_lo, n_len, i;

	out->tensor = uns_value_field(v, "tensor");
	UNS_TRY(new_boxes(arena, 1, out, err));
	if (!uns_torch_is_tensor(out->tensor) ||
	    !uns_value_dims(uns_value_field(meta, "shard_offsets"), out->lo[0], UNS_MAX_DIMS, &n_lo) ||
	    !uns_value_dims(uns_value_field(meta, "shard_sizes"), out->len[0], UNS_MAX_DIMS, &n_len) ||
	    n_lo != whole->n_dims || n_len != whole->n_dims)
		return uns_fail(err, -EBADMSG, "a ShardedTensor's shard without offsets and sizes");
	for (i = 0; i < n_lo; i++)
		if (!uns_inside(out->lo[0][i], out->len[0][i], whole->dims[i]))
			return uns_fail(err, -EBADMSG, "a ShardedTensor's shard passes the end of dimension %zu", i);
	return 0;
}

/* (local shards, metadata, process group state, sharding spec, init_rrefs) */
static int parse_sharded(const struct uns_value *state, struct uns_arena *arena, struct uns_sharded_tensor *out,
			 struct uns_err *err)
{
	const struct uns_value *shards = uns_value_at(state, 0), *group = uns_value_at(state, 2);
	const struct uns_value *size = uns_value_field(uns_value_at(state, 1), "size");
	uint64_t dims[UNS_MAX_DIMS];
	size_t n, i;

	if (!shards || shards->kind != UNS_VALUE_LIST)
		return uns_fail(err, -EBADMSG, "a ShardedTensor without its list of shards");
	UNS_TRY(parse_dims(size, dims, &n, err));
	if (!same_dims(dims, n, out->dims, out->n_dims))
		return uns_fail(err, -EBADMSG, "a ShardedTensor that records two global shapes");
	if (!uns_value_int(uns_value_field(group, "global_rank"), &out->rank))
		out->rank = -1;
	if (!uns_value_int(uns_value_field(group, "global_world_size"), &out->mesh_size))
		out->mesh_size = -1;
	out->n_mesh = out->mesh_size > 0;
	out->mesh[0] = out->n_mesh ? (uint64_t)out->mesh_size : 0;
	out->n_shards = shards->n;
	UNS_TRY_ALLOC(out->shard = UNS_NEW_N(arena, struct uns_local_shard, out->n_shards), err);
	for (i = 0; i < out->n_shards; i++)
		UNS_TRY(parse_shard(shards->item[i], out, arena, &out->shard[i], err));
	return 0;
}

int uns_dtensor_parse(const struct uns_torchfile *file, const struct uns_value *v, int64_t file_rank,
		      struct uns_arena *arena, struct uns_sharded_tensor *out, struct uns_err *err)
{
	const struct uns_value *cls = wrapper_class(v), *state;

	*out = (struct uns_sharded_tensor){ 0 };
	if (!uns_dtensor_is(v))
		return uns_fail(err, -EBADMSG, "not a sharded tensor");
	UNS_TRY(parse_wrapper(v, out, err));
	state = uns_value_at(v->object.args, 3);
	if (is_class(cls, "DTensor"))
		return parse_dtensor(file, state, file_rank, arena, out, err);
	return parse_sharded(state, arena, out, err);
}
