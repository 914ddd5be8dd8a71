/* Makes a DTensor by going through one that was read, field by field. Fields that depend on the tensor, the mesh or the
 * rank get new values, and the others are copied. A field that unshard does not know is refused. Source: the same files
 * as ranks/dtensor.c's. */
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
	uint64_t world, rank; /* of a mesh */
	const struct uns_value *ranks; /* of a mesh */
	const struct uns_value *mesh, *local; /* of a tensor */
	enum uns_dtype dtype;
	const uint64_t *dims;
	size_t n_dims;
};

/* What a field is made of. */
enum field_form {
	AS_IT_WAS,
	NONE,
	FALSE,
	EMPTY_DICT,
	/* of a mesh */
	RANKS,
	RANK_LIST,
	OWN_RANK,
	COORDINATE,
	DIM_NAMES,
	GROUP_NAMES,
	GROUP_INFOS,
	LAYOUT,
	/* of a mesh's layout */
	AXES,
	SHAPE,
	STRIDE,
	FLAT_SHAPE,
	FLAT_STRIDE,
	/* of a spec */
	MESH,
	PLACEMENTS,
	TENSOR_META,
	SHARD_ORDER,
};

struct field {
	const char *name;
	enum field_form form;
};

static const struct field mesh_fields[] = {
	{ "device_type", AS_IT_WAS },
	{ "_device_type", AS_IT_WAS },
	{ "mesh", RANKS },
	{ "_rank_map", RANKS },
	{ "_layout", LAYOUT },
	{ "mesh_dim_names", DIM_NAMES },
	{ "_mesh_dim_names", DIM_NAMES },
	{ "_root_mesh", NONE },
	{ "_parent_mesh", NONE },
	{ "_flatten_rank_map", RANK_LIST },
	{ "_flatten_mesh_list", RANK_LIST },
	{ "_flatten_mapping", EMPTY_DICT },
	{ "_thread_id", AS_IT_WAS },
	{ "_dim_group_names", GROUP_NAMES },
	{ "_dim_group_infos", GROUP_INFOS },
	{ "_rank", OWN_RANK },
	{ "_coordinate_on_dim", COORDINATE },
	{ "_hash", NONE }, /* torch computes it again when it needs it */
	{ 0 },
};

static const struct field layout_fields[] = { { "axes", AXES }, { "shape", SHAPE }, { "stride", STRIDE }, { 0 } };
static const struct field axis_fields[] = { { "shape", FLAT_SHAPE }, { "stride", FLAT_STRIDE }, { 0 } };

static const struct field spec_fields[] = {
	{ "mesh", MESH },
	{ "placements", PLACEMENTS },
	{ "tensor_meta", TENSOR_META },
	{ "shard_order", SHARD_ORDER },
	{ "use_strided_shard_as_shard_order", FALSE },
	{ "_hash", NONE },
	{ 0 },
};

/* -- small values -- */

static const struct uns_value *number(const struct making *m, uint64_t n)
{
	return uns_value_new_int(m->arena, (int64_t)n);
}

/* (v,), or [v] where it was a list. */
static const struct uns_value *one(const struct making *m, const struct uns_value *was, const struct uns_value *v)
{
	struct uns_value *seq =
		was->kind == UNS_VALUE_LIST ? uns_value_new_list(m->arena, 1) : uns_value_new_tuple(m->arena, 1);

	uns_value_append(seq, v);
	return seq;
}

static const struct uns_value *numbers(const struct making *m, const uint64_t *v, size_t n)
{
	struct uns_value *tuple = uns_value_new_tuple(m->arena, n);
	size_t i;

	for (i = 0; i < n; i++)
		uns_value_append(tuple, number(m, v[i]));
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
	return uns_value_new_global(m->arena, uns_arena_printf(m->arena, "torch.%s", uns_dtype_info(m->dtype)->torch));
}

/* "a.b.C" and "D" -> "a.b.D" */
static const char *beside(struct uns_arena *arena, const char *cls, const char *name)
{
	const char *dot = strrchr(cls, '.');

	return uns_arena_printf(arena, "%.*s.%s", dot ? (int)(dot - cls) : 0, cls, name);
}

/* -- fields -- */

static const struct uns_value *rank_list(const struct making *m, const struct uns_value *was)
{
	struct uns_value *seq = uns_value_new_tuple(m->arena, m->world);
	uint64_t r;

	for (r = 0; r < m->world; r++)
		uns_value_append(seq, number(m, r));
	if (seq)
		seq->kind = was->kind == UNS_VALUE_LIST ? UNS_VALUE_LIST : UNS_VALUE_TUPLE;
	return seq;
}

/* [(tag, ranks, name)]; the name came with torch 2.4. */
static const struct uns_value *group_infos(const struct making *m, const struct uns_value *was)
{
	const struct uns_value *first = uns_value_at(was, 0), *list = uns_value_at(first, 1);
	struct uns_value *info = uns_value_new_tuple(m->arena, 3);

	if (!list)
		return was; /* nothing to name a group by */
	uns_value_append(info, uns_value_new_str(m->arena, "ptd:0"));
	uns_value_append(info, rank_list(m, list));
	if (uns_value_at(first, 2))
		uns_value_append(info, uns_value_new_str(m->arena, "0"));
	return one(m, was, info);
}

/* Placements of one dimension, and orders of several, are tuples of objects. */
static const struct uns_value *tuple_of(const struct making *m, const char *cls, const struct uns_value *args,
					const struct uns_value *state)
{
	struct uns_value *tuple = uns_value_new_tuple(m->arena, 1);

	uns_value_append(tuple, uns_value_new_object(m->arena, cls, args, state));
	return tuple;
}

/* Shard(dim=0) */
static const struct uns_value *placements(const struct making *m)
{
	struct uns_value *state = uns_value_new_dict(m->arena, 1);

	uns_value_put_str(m->arena, state, "dim", number(m, 0));
	return tuple_of(m, m->form->shard, uns_value_new_tuple(m->arena, 0), state);
}

/* Tensor dimension 0 is cut by mesh dimension 0. */
static const struct uns_value *shard_order(const struct making *m)
{
	static const uint64_t first[1];
	struct uns_value *args = uns_value_new_tuple(m->arena, 2);

	uns_value_append(args, number(m, 0));
	uns_value_append(args, numbers(m, first, 1));
	return tuple_of(m, beside(m->arena, m->form->spec->cls, "ShardOrderEntry"), args, NULL);
}

/* TensorMeta(size, stride, dtype), TensorMetadata(size, dtype, requires_grad, stride, ..): the types of the
 * arguments distinguish them. */
static const struct uns_value *tensor_meta(const struct making *m, const struct uns_value *was)
{
	size_t i, n = was->object.args->n;
	struct uns_value *args = uns_value_new_tuple(m->arena, n);
	const struct uns_value *arg;

	for (i = 0; i < n; i++) {
		arg = was->object.args->item[i];
		if (arg->kind == UNS_VALUE_GLOBAL)
			arg = dtype_of(m);
		else if (arg->kind == UNS_VALUE_TUPLE)
			arg = strides(m);
		else if (arg->kind == UNS_VALUE_OBJECT && uns_value_is(arg, "torch.Size"))
			arg = uns_value_new_size(m->arena, m->dims, (uint32_t)m->n_dims);
		uns_value_append(args, arg);
	}
	return uns_value_new_object(m->arena, was->cls, args, NULL);
}

/* Makes the object again with new fields in its state. Fails with -ENOTSUP, and the field's name, if it has one that is
 * not in `fields`. */
static int make_object(const struct making *m, const struct uns_value *was, const struct field *fields,
		       const struct uns_value **out, struct uns_err *err);

/* Returns NULL if memory is out. */
static const struct uns_value *make_field(const struct making *m, enum field_form form, const struct uns_value *was)
{
	const bool has_one = uns_value_at(was, 0) && !uns_value_at(was, 1);
	const struct uns_value *made = NULL;

	switch (form) {
	case NONE:
		return uns_value_new_none(m->arena);
	case FALSE:
		return uns_value_new_bool(m->arena, false);
	case EMPTY_DICT:
		return uns_value_new_dict(m->arena, 0);
	case RANKS:
		return m->ranks;
	case RANK_LIST:
		return rank_list(m, was);
	case OWN_RANK:
		return number(m, m->rank);
	case COORDINATE:
		return one(m, was, number(m, m->rank));
	case DIM_NAMES: /* veRL and EasyR1 call the mesh's only dimension "fsdp" */
		return was->kind == UNS_VALUE_NONE || has_one ? was : one(m, was, uns_value_new_str(m->arena, "fsdp"));
	case GROUP_NAMES: /* all ranks are the default group, whose name is its number */
		return has_one ? was : one(m, was, uns_value_new_str(m->arena, "0"));
	case GROUP_INFOS:
		return group_infos(m, was);
	case LAYOUT:
		return make_object(m, was, layout_fields, &made, NULL) < 0 ? NULL : made;
	case AXES:
		made = uns_value_at(was, 0);
		return !made || make_object(m, made, axis_fields, &made, NULL) < 0 ? NULL : one(m, was, made);
	case FLAT_SHAPE:
	case FLAT_STRIDE: /* a _FlatLayout leaves out dimensions of size 1: torch compares meshes by it */
		if (m->world == 1)
			return uns_value_new_tuple(m->arena, 0);
		made = number(m, form == FLAT_SHAPE ? m->world : 1);
		return was->kind == UNS_VALUE_INT ? made : one(m, was, made);
	case SHAPE:
	case STRIDE: /* one dimension: the number of ranks, and 1; a number, tuple or list as it was */
		made = number(m, form == SHAPE ? m->world : 1);
		return was->kind == UNS_VALUE_INT ? made : one(m, was, made);
	case MESH:
		return m->mesh;
	case PLACEMENTS:
		return placements(m);
	case TENSOR_META:
		return tensor_meta(m, was);
	case SHARD_ORDER:
		return shard_order(m);
	case AS_IT_WAS:
		break;
	}
	return was;
}

/* -- objects field by field -- */

/* The last, which has no name, where there is none of this name. */
static const struct field *find_field(const struct field *f, const char *name)
{
	while (f->name && (!name || strcmp(f->name, name) != 0))
		f++;
	return f;
}

/* Each known, and there once: what was looked at is then what make_object takes. */
static int check_fields(const struct uns_value *object, const struct field *fields, struct uns_err *err)
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

static int make_object(const struct making *m, const struct uns_value *was, const struct field *fields,
		       const struct uns_value **out, struct uns_err *err)
{
	const struct uns_value *old = was->state;
	struct uns_value *state;
	size_t i;

	UNS_TRY(check_fields(was, fields, err));
	state = uns_value_new_dict(m->arena, old->n);
	for (i = 0; i < old->n; i++) {
		const struct field *f = find_field(fields, uns_value_str(old->pair[i].key));

		UNS_TRY_ALLOC(uns_value_put(state, old->pair[i].key, make_field(m, f->form, old->pair[i].value)), err);
	}
	*out = uns_value_new_object(m->arena, was->cls, was->object.args, state);
	return *out ? 0 : uns_oom(err);
}

/* -- the wrapper -- */

enum { WRAPPER_STATE = 3, ARG_DTYPE = 1, ARG_SIZE, ARG_STRIDE, ARG_DEVICE = 6, N_ARGS = 8 };

/* The device is the CPU, because no file records the GPU of a rank. */
static const struct uns_value *wrapper_args(const struct making *m, const struct uns_value *was)
{
	struct uns_value *args = uns_value_new_tuple(m->arena, N_ARGS), *cpu = uns_value_new_tuple(m->arena, 1);
	size_t i;

	uns_value_append(cpu, uns_value_new_str(m->arena, "cpu"));
	for (i = 0; i < N_ARGS; i++)
		uns_value_append(args, i == ARG_DTYPE    ? dtype_of(m)
				       : i == ARG_SIZE   ? numbers(m, m->dims, m->n_dims)
				       : i == ARG_STRIDE ? strides(m)
				       : i == ARG_DEVICE ? uns_value_new_object(m->arena, "torch.device", cpu, NULL)
							 : uns_value_at(was, i));
	return args;
}

int uns_dtensor_new(const struct uns_dtensor_form *form, struct uns_arena *arena, const struct uns_value *mesh_value,
		    enum uns_dtype dtype, const uint64_t *dims, size_t n_dims, const struct uns_value *local,
		    const struct uns_value **out, struct uns_err *err)
{
	const struct making m = { .form = form,
				  .arena = arena,
				  .mesh = mesh_value,
				  .local = local,
				  .dtype = dtype,
				  .dims = dims,
				  .n_dims = n_dims };
	const struct uns_value *old = form->like->object.args, *spec;
	struct uns_value *args = uns_value_new_tuple(arena, 4), *state = uns_value_new_tuple(arena, 2);
	struct uns_value *slots = uns_value_new_dict(arena, 2);

	if (n_dims == 0 || n_dims > UNS_MAX_DIMS)
		return uns_fail(err, -ENOTSUP, "a tensor of %zu dimensions has no rows to shard", n_dims);
	UNS_TRY(make_object(&m, form->spec, spec_fields, &spec, err));
	uns_value_put_str(arena, slots, "_local_tensor", local);
	uns_value_put_str(arena, slots, "_spec", spec);
	uns_value_append(state, uns_value_new_none(arena));
	uns_value_append(state, slots);
	uns_value_append(args, uns_value_at(old, 0));
	uns_value_append(args, uns_value_at(old, 1));
	uns_value_append(args, wrapper_args(&m, uns_value_at(old, 2)));
	uns_value_append(args, state);
	*out = uns_value_new_object(arena, form->like->cls, args, NULL);
	return uns_arena_check(arena, err);
}

int uns_dtensor_mesh_new(const struct uns_dtensor_form *form, struct uns_arena *arena, uint64_t world,
			 uint64_t this_rank, const struct uns_value *ranks_value, const struct uns_value **out,
			 struct uns_err *err)
{
	const struct making m = {
		.form = form, .arena = arena, .world = world, .rank = this_rank, .ranks = ranks_value
	};

	return make_object(&m, form->mesh, mesh_fields, out, err);
}

/* -- what there is to take over -- */

/* By its storage's class: ('storage', torch.IntStorage, ..). */
static enum uns_dtype ranks_dtype(const struct uns_value *mesh)
{
	const struct uns_value *map = uns_value_field(mesh, "_rank_map"), *pid, *storage;
	const struct uns_value *tensor = map ? map : uns_value_field(mesh, "mesh");

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
	const struct uns_value *layout = uns_value_field(mesh_value, "_layout"), *all;

	if (!layout)
		return 0;
	UNS_TRY(check_fields(layout, layout_fields, err));
	all = uns_value_field(layout, "axes");
	return all ? check_fields(uns_value_at(all, 0), layout_fields, err) : 0;
}

static int unknown_form(struct uns_err *err)
{
	return uns_fail(err, -ENOTSUP, "it is not a DTensor of a form that unshard knows");
}

int uns_dtensor_form_of(const struct uns_value *like, struct uns_arena *arena, struct uns_dtensor_form *out,
			struct uns_err *err)
{
	const struct uns_value *args = like && like->kind == UNS_VALUE_OBJECT ? like->object.args : NULL;
	const struct uns_value *cls = uns_value_at(args, 1), *state, *placed, *meta;

	*out = (struct uns_dtensor_form){ .like = like };
	if (!uns_value_is(like, "torch._tensor._rebuild_from_type_v2") || !cls || !cls->cls ||
	    !uns_str_ends(cls->cls, ".DTensor") || !uns_value_at(uns_value_at(args, 2), N_ARGS - 1) ||
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
