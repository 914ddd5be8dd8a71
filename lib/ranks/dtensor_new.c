/* DTensors are made by going through one that was read, field by field: what depends on the tensor, on
 * the mesh or on the rank is put in anew, the rest is taken over, and a field that is not known is
 * refused rather than guessed. Source: the same files as ranks/dtensor.c's. */
#include "ranks/dtensor_new.h"

#include <string.h>

#include "base/path.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

const struct uns_pickle_class uns_dtensor_classes[] = {
	{ .name = "torch._tensor._rebuild_from_type_v2", .called = true },
	{ .name = "torch._utils._rebuild_wrapper_subclass", .called = true },
	{ .name = "torch.serialization._get_layout", .called = true },
	{ .name = "torch.device", .called = true },
	{ .name = "torch.distributed.tensor.DTensor" },
	{ .name = "torch.distributed._tensor.api.DTensor" },
	{ .name = "torch.distributed.tensor._dtensor_spec.DTensorSpec" },
	{ .name = "torch.distributed._tensor.placement_types.DTensorSpec" },
	{ .name = "torch.distributed.tensor._dtensor_spec.TensorMeta" },
	{ .name = "torch.distributed._tensor.placement_types.TensorMeta" },
	{ .name = "torch.fx.passes.shape_prop.TensorMetadata" },
	{ .name = "torch.distributed.tensor._dtensor_spec.ShardOrderEntry" },
	{ .name = "torch.distributed.tensor.placement_types.Shard" },
	{ .name = "torch.distributed._tensor.placement_types.Shard" },
	{ .name = "torch.distributed.device_mesh.DeviceMesh", .once = true },
	{ .name = "torch.distributed._tensor.device_mesh.DeviceMesh", .once = true },
	{ .name = "torch.distributed._mesh_layout._MeshLayout" },
	{ .name = "torch.distributed._mesh_layout._FlatLayout" },
	{ .name = NULL },
};

/* What fields are made of. */
struct making {
	const struct uns_dtensor_form *form;
	struct uns_arena *arena;
	uint64_t world, rank;          /* of a mesh */
	const struct uns_value *ranks; /* of a mesh */
	const struct uns_value *mesh, *local; /* of a tensor */
	enum uns_dtype dtype;
	const uint64_t *dims;
	size_t n_dims;
};

/* NULL = out of memory. */
typedef const struct uns_value *make_field(const struct making *m, const struct uns_value *was);

struct field {
	const char *name;
	make_field *make;
};

/* -- small values -- */

static const struct uns_value *number(const struct making *m, uint64_t n)
{
	return uns_value_new_int(m->arena, (int64_t)n);
}

/* (v,), or [v] where it was a list. */
static const struct uns_value *one(const struct making *m, const struct uns_value *was,
				   const struct uns_value *v)
{
	struct uns_value *seq = was->kind == UNS_VALUE_LIST ? uns_value_new_list(m->arena, 1)
							    : uns_value_new_tuple(m->arena, 1);

	return uns_value_append(seq, v) ? seq : NULL;
}

static const struct uns_value *numbers(const struct making *m, const uint64_t *v, size_t n)
{
	struct uns_value *tuple = uns_value_new_tuple(m->arena, n);
	size_t i;

	for (i = 0; i < n; i++)
		if (!uns_value_append(tuple, number(m, v[i])))
			return NULL;
	return tuple;
}

static const struct uns_value *strides(const struct making *m)
{
	uint64_t v[UNS_MAX_DIMS], elems = 1;
	size_t i;

	for (i = m->n_dims; i-- > 0;) {
		v[i] = elems;
		elems *= m->dims[i] ? m->dims[i] : 1; /* as torch counts strides of empty tensors */
	}
	return numbers(m, v, m->n_dims);
}

static const struct uns_value *dtype_of(const struct making *m)
{
	const char *name = uns_arena_printf(m->arena, "torch.%s", uns_dtype_info(m->dtype)->torch);

	return name ? uns_value_new_global(m->arena, name) : NULL;
}

/* "a.b.C" and "D" -> "a.b.D" */
static const char *beside(struct uns_arena *arena, const char *cls, const char *name)
{
	const char *dot = strrchr(cls, '.');

	return uns_arena_printf(arena, "%.*s.%s", dot ? (int)(dot - cls) : 0, cls, name);
}

/* -- fields -- */

static const struct uns_value *keep(const struct making *m, const struct uns_value *was)
{
	(void)m;
	return was;
}

static const struct uns_value *none(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return uns_value_new_none(m->arena);
}

static const struct uns_value *empty_dict(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return uns_value_new_dict(m->arena, 0);
}

static const struct uns_value *no(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return uns_value_new_bool(m->arena, false);
}

/* The object with the fields of its state made anew; -ENOTSUP names one that is not known. */
static int make_object(const struct making *m, const struct uns_value *was,
		       const struct field *fields, const struct uns_value **out,
		       struct uns_err *err);

/* -- a mesh -- */

static const struct uns_value *ranks(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return m->ranks;
}

static const struct uns_value *rank(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return number(m, m->rank);
}

static const struct uns_value *coordinate(const struct making *m, const struct uns_value *was)
{
	return one(m, was, number(m, m->rank));
}

static const struct uns_value *all_ranks(const struct making *m, const struct uns_value *was)
{
	struct uns_value *seq = uns_value_new_tuple(m->arena, m->world);
	uint64_t r;

	for (r = 0; r < m->world; r++)
		if (!uns_value_append(seq, number(m, r)))
			return NULL;
	if (seq)
		seq->kind = was->kind == UNS_VALUE_LIST ? UNS_VALUE_LIST : UNS_VALUE_TUPLE;
	return seq;
}

/* A dimension of one number each: the world's size, and 1. Spelled as it was. */
static const struct uns_value *axis_shape(const struct making *m, const struct uns_value *was)
{
	const struct uns_value *n = number(m, m->world);

	return was->kind == UNS_VALUE_INT ? n : one(m, was, n);
}

static const struct uns_value *axis_stride(const struct making *m, const struct uns_value *was)
{
	const struct uns_value *n = number(m, 1);

	return was->kind == UNS_VALUE_INT ? n : one(m, was, n);
}

/* A _FlatLayout leaves out what has the size 1: meshes are compared by this. */
static const struct uns_value *flat_shape(const struct making *m, const struct uns_value *was)
{
	return m->world > 1 ? axis_shape(m, was) : uns_value_new_tuple(m->arena, 0);
}

static const struct uns_value *flat_stride(const struct making *m, const struct uns_value *was)
{
	return m->world > 1 ? axis_stride(m, was) : uns_value_new_tuple(m->arena, 0);
}

static const struct uns_value *axes(const struct making *m, const struct uns_value *was)
{
	static const struct field fields[] = { { "shape", flat_shape }, { "stride", flat_stride }, { 0 } };
	const struct uns_value *first = uns_value_at(was, 0), *axis = NULL;

	if (!first || make_object(m, first, fields, &axis, NULL) < 0)
		return NULL;
	return one(m, was, axis);
}

static const struct uns_value *mesh_layout(const struct making *m, const struct uns_value *was)
{
	static const struct field fields[] = {
		{ "axes", axes }, { "shape", axis_shape }, { "stride", axis_stride }, { 0 }
	};
	const struct uns_value *out = NULL;

	return make_object(m, was, fields, &out, NULL) < 0 ? NULL : out;
}

/* veRL and EasyR1 call the mesh's only dimension "fsdp". */
static const struct uns_value *dim_names(const struct making *m, const struct uns_value *was)
{
	if (was->kind == UNS_VALUE_NONE || (uns_value_at(was, 0) && !uns_value_at(was, 1)))
		return was;
	return one(m, was, uns_value_new_str(m->arena, "fsdp"));
}

/* All ranks are the default group, whose name is its number. */
static const struct uns_value *group_names(const struct making *m, const struct uns_value *was)
{
	if (uns_value_at(was, 0) && !uns_value_at(was, 1))
		return was;
	return one(m, was, uns_value_new_str(m->arena, "0"));
}

/* [(tag, ranks, name)]; the name came with torch 2.4. */
static const struct uns_value *group_infos(const struct making *m, const struct uns_value *was)
{
	const struct uns_value *first = uns_value_at(was, 0), *list = uns_value_at(first, 1);
	struct uns_value *info = uns_value_new_tuple(m->arena, 3);

	if (!list)
		return was; /* nothing to name a group by */
	if (!uns_value_append(info, uns_value_new_str(m->arena, "ptd:0")) ||
	    !uns_value_append(info, all_ranks(m, list)) ||
	    (uns_value_at(first, 2) &&
	     !uns_value_append(info, uns_value_new_str(m->arena, "0"))))
		return NULL;
	return one(m, was, info);
}

static const struct field mesh_fields[] = {
	{ "device_type", keep },
	{ "_device_type", keep },
	{ "mesh", ranks },
	{ "_rank_map", ranks },
	{ "_layout", mesh_layout },
	{ "mesh_dim_names", dim_names },
	{ "_mesh_dim_names", dim_names },
	{ "_root_mesh", none },
	{ "_parent_mesh", none },
	{ "_flatten_rank_map", all_ranks },
	{ "_flatten_mesh_list", all_ranks },
	{ "_flatten_mapping", empty_dict },
	{ "_thread_id", keep },
	{ "_dim_group_names", group_names },
	{ "_dim_group_infos", group_infos },
	{ "_rank", rank },
	{ "_coordinate_on_dim", coordinate },
	{ "_hash", none }, /* found out again when it is asked for */
	{ 0 },
};

/* -- a spec, and what it says -- */

static const struct uns_value *mesh(const struct making *m, const struct uns_value *was)
{
	(void)was;
	return m->mesh;
}

/* Placements of one dimension, and orders of several, are tuples of objects. */
static const struct uns_value *tuple_of(const struct making *m, const char *cls,
					const struct uns_value *args,
					const struct uns_value *state)
{
	struct uns_value *tuple = uns_value_new_tuple(m->arena, 1);

	return uns_value_append(tuple, uns_value_new_object(m->arena, cls, args, state)) ? tuple
											: NULL;
}

static const struct uns_value *placements(const struct making *m, const struct uns_value *was)
{
	struct uns_value *state = uns_value_new_dict(m->arena, 1);

	(void)was;
	if (!uns_value_put(state, uns_value_new_str(m->arena, "dim"), number(m, 0)))
		return NULL;
	return tuple_of(m, m->form->shard, uns_value_new_tuple(m->arena, 0), state);
}

/* Tensor dimension 0 is cut by mesh dimension 0. */
static const struct uns_value *shard_order(const struct making *m, const struct uns_value *was)
{
	static const uint64_t first[1];
	const char *cls = beside(m->arena, m->form->spec->cls, "ShardOrderEntry");
	struct uns_value *args = uns_value_new_tuple(m->arena, 2);

	(void)was;
	if (!cls || !uns_value_append(args, number(m, 0)) ||
	    !uns_value_append(args, numbers(m, first, 1)))
		return NULL;
	return tuple_of(m, cls, args, NULL);
}

/* TensorMeta(size, stride, dtype), TensorMetadata(size, dtype, requires_grad, stride, ..): the types of the
 * arguments distinguish them. */
static const struct uns_value *meta_arg(const struct making *m, const struct uns_value *was)
{
	if (was->kind == UNS_VALUE_GLOBAL)
		return dtype_of(m);
	if (was->kind == UNS_VALUE_TUPLE)
		return strides(m);
	if (was->kind != UNS_VALUE_OBJECT || !uns_value_is(was, "torch.Size"))
		return was;
	return uns_value_new_size(m->arena, m->dims, (uint32_t)m->n_dims);
}

static const struct uns_value *tensor_meta(const struct making *m, const struct uns_value *was)
{
	size_t i, n = was->object.args->n;
	struct uns_value *args = uns_value_new_tuple(m->arena, n);

	for (i = 0; i < n; i++)
		if (!uns_value_append(args, meta_arg(m, was->object.args->item[i])))
			return NULL;
	return uns_value_new_object(m->arena, was->cls, args, NULL);
}

static const struct field spec_fields[] = {
	{ "mesh", mesh },
	{ "placements", placements },
	{ "tensor_meta", tensor_meta },
	{ "shard_order", shard_order },
	{ "use_strided_shard_as_shard_order", no },
	{ "_hash", none },
	{ 0 },
};

/* -- objects field by field -- */

/* The last, which has no name, where there is none of this name. */
static const struct field *find_field(const struct field *f, const char *name)
{
	while (f->name && (!name || strcmp(f->name, name) != 0))
		f++;
	return f;
}

/* Each known, and there once: what was looked at is then what make_object takes. */
static int check_fields(const struct uns_value *object, const struct field *fields,
			struct uns_err *err)
{
	const struct uns_value *state = object ? object->state : NULL;
	size_t i;

	if (!state || state->kind != UNS_VALUE_DICT || object->kind != UNS_VALUE_OBJECT)
		return uns_fail(err, -ENOTSUP, "a DTensor of a form that unshard does not know");
	for (i = 0; i < state->n; i++) {
		const char *name = uns_value_str(state->pair[i].key);

		if (!find_field(fields, name)->name)
			return uns_fail(err, -ENOTSUP,
					"a DTensor whose %s has a field %s that unshard does not "
					"know: another version of torch saved it",
					object->cls, name ? name : "(not a name)");
		if (uns_value_get(state, name) != state->pair[i].value)
			return uns_fail(err, -ENOTSUP, "a DTensor whose %s has the field %s twice", object->cls, name);
	}
	return 0;
}

static int make_object(const struct making *m, const struct uns_value *was,
		       const struct field *fields, const struct uns_value **out,
		       struct uns_err *err)
{
	const struct uns_value *old = was->state;
	struct uns_value *state;
	size_t i;

	UNS_TRY(check_fields(was, fields, err));
	state = uns_value_new_dict(m->arena, old->n);
	for (i = 0; i < old->n; i++) {
		const struct field *f = find_field(fields, uns_value_str(old->pair[i].key));

		if (!uns_value_put(state, old->pair[i].key, f->make(m, old->pair[i].value)))
			return uns_oom(err);
	}
	*out = uns_value_new_object(m->arena, was->cls, was->object.args, state);
	return *out ? 0 : uns_oom(err);
}

/* -- the wrapper -- */

enum { WRAPPER_STATE = 3, ARG_DTYPE = 1, ARG_SIZE, ARG_STRIDE, ARG_DEVICE = 6, N_ARGS = 8 };

static const struct uns_value *cpu(const struct making *m)
{
	struct uns_value *args = uns_value_new_tuple(m->arena, 1);

	if (!uns_value_append(args, uns_value_new_str(m->arena, "cpu")))
		return NULL;
	return uns_value_new_object(m->arena, "torch.device", args, NULL);
}

static const struct uns_value *wrapper_arg(const struct making *m, size_t i,
					   const struct uns_value *was)
{
	if (i == ARG_DTYPE)
		return dtype_of(m);
	if (i == ARG_SIZE)
		return numbers(m, m->dims, m->n_dims);
	if (i == ARG_STRIDE)
		return strides(m);
	return i == ARG_DEVICE ? cpu(m) : was; /* which GPU a rank has is not known */
}

static const struct uns_value *wrapper_args(const struct making *m, const struct uns_value *was)
{
	struct uns_value *args = uns_value_new_tuple(m->arena, N_ARGS);
	size_t i;

	for (i = 0; i < N_ARGS; i++)
		if (!uns_value_append(args, wrapper_arg(m, i, uns_value_at(was, i))))
			return NULL;
	return args;
}

/* (None, {_local_tensor, _spec}) */
static const struct uns_value *wrapper_state(const struct making *m, const struct uns_value *spec)
{
	struct uns_value *state = uns_value_new_tuple(m->arena, 2);
	struct uns_value *slots = uns_value_new_dict(m->arena, 2);

	if (!uns_value_put(slots, uns_value_new_str(m->arena, "_local_tensor"), m->local) ||
	    !uns_value_put(slots, uns_value_new_str(m->arena, "_spec"), spec) ||
	    !uns_value_append(state, uns_value_new_none(m->arena)) ||
	    !uns_value_append(state, slots))
		return NULL;
	return state;
}

int uns_dtensor_new(const struct uns_dtensor_form *form, struct uns_arena *arena,
		    const struct uns_value *mesh_value, enum uns_dtype dtype, const uint64_t *dims,
		    size_t n_dims, const struct uns_value *local, const struct uns_value **out,
		    struct uns_err *err)
{
	const struct making m = { .form = form, .arena = arena, .mesh = mesh_value, .local = local,
				  .dtype = dtype, .dims = dims, .n_dims = n_dims };
	const struct uns_value *old = form->like->object.args, *spec;
	struct uns_value *args = uns_value_new_tuple(arena, 4);

	if (n_dims == 0 || n_dims > UNS_MAX_DIMS)
		return uns_fail(err, -ENOTSUP, "a tensor of %zu dimensions has no rows to shard",
				n_dims);
	UNS_TRY(make_object(&m, form->spec, spec_fields, &spec, err));
	if (!uns_value_append(args, uns_value_at(old, 0)) ||
	    !uns_value_append(args, uns_value_at(old, 1)) ||
	    !uns_value_append(args, wrapper_args(&m, uns_value_at(old, 2))) ||
	    !uns_value_append(args, wrapper_state(&m, spec)))
		return uns_oom(err);
	*out = uns_value_new_object(arena, form->like->cls, args, NULL);
	return *out ? 0 : uns_oom(err);
}

int uns_dtensor_mesh_new(const struct uns_dtensor_form *form, struct uns_arena *arena,
			 uint64_t world, uint64_t this_rank, const struct uns_value *ranks_value,
			 const struct uns_value **out, struct uns_err *err)
{
	const struct making m = { .form = form, .arena = arena, .world = world, .rank = this_rank,
				  .ranks = ranks_value };

	return make_object(&m, form->mesh, mesh_fields, out, err);
}

/* -- what there is to take over -- */

static const struct uns_value *tensor_of_ranks(const struct uns_value *mesh_value)
{
	const struct uns_value *v = uns_value_field(mesh_value, "_rank_map");

	return v ? v : uns_value_field(mesh_value, "mesh");
}

/* By its storage's class: ('storage', torch.IntStorage, ..). */
static enum uns_dtype ranks_dtype(const struct uns_value *mesh_value)
{
	const struct uns_value *tensor = tensor_of_ranks(mesh_value), *pid, *storage;

	if (!uns_torch_is_tensor(tensor))
		return UNS_DTYPE_NONE;
	pid = uns_value_at(tensor->object.args, 0);
	storage = pid && pid->kind == UNS_VALUE_OBJECT ? uns_value_at(pid->object.args, 1) : NULL;
	if (uns_value_is(storage, "torch.IntStorage"))
		return UNS_I32;
	return uns_value_is(storage, "torch.LongStorage") ? UNS_I64 : UNS_DTYPE_NONE;
}

static int check_layout(const struct uns_value *mesh_value, struct uns_err *err)
{
	static const struct field fields[] = {
		{ "axes", axes }, { "shape", axis_shape }, { "stride", axis_stride }, { 0 }
	};
	const struct uns_value *layout = uns_value_field(mesh_value, "_layout"), *all;

	if (!layout)
		return 0;
	UNS_TRY(check_fields(layout, fields, err));
	all = uns_value_field(layout, "axes");
	return all ? check_fields(uns_value_at(all, 0), fields, err) : 0;
}

static int unknown_form(struct uns_err *err)
{
	return uns_fail(err, -ENOTSUP, "it is not a DTensor of a form that unshard knows");
}

int uns_dtensor_form_of(const struct uns_value *like, struct uns_arena *arena,
			struct uns_dtensor_form *out, struct uns_err *err)
{
	const struct uns_value *args = like && like->kind == UNS_VALUE_OBJECT ? like->object.args : NULL;
	const struct uns_value *cls = uns_value_at(args, 1), *state, *placed, *meta;

	*out = (struct uns_dtensor_form){ .like = like };
	if (!uns_value_is(like, "torch._tensor._rebuild_from_type_v2") || !cls || !cls->cls ||
	    !uns_str_ends(cls->cls, ".DTensor") ||
	    !uns_value_at(uns_value_at(args, 2), N_ARGS - 1) ||
	    uns_value_at(uns_value_at(args, 2), N_ARGS))
		return unknown_form(err);
	state = uns_value_at(args, WRAPPER_STATE);
	out->spec = uns_value_get(uns_value_at(state, 1), "_spec");
	UNS_TRY(check_fields(out->spec, spec_fields, err));
	out->mesh = uns_value_field(out->spec, "mesh");
	UNS_TRY(check_fields(out->mesh, mesh_fields, err));
	UNS_TRY(check_layout(out->mesh, err));
	out->ranks = ranks_dtype(out->mesh);
	meta = uns_value_field(out->spec, "tensor_meta");
	placed = uns_value_at(uns_value_field(out->spec, "placements"), 0);
	if (out->ranks == UNS_DTYPE_NONE || !placed || !placed->cls || !strchr(placed->cls, '.') || !out->spec->cls ||
	    !meta || meta->kind != UNS_VALUE_OBJECT || !meta->object.args)
		return unknown_form(err);
	out->shard = beside(arena, placed->cls, "Shard");
	return out->shard ? 0 : uns_oom(err);
}
