/* Finds the records of a torch.save archive, and turns the call that rebuilds a tensor into the
 * position of its bytes. Knows no wrappers (DTensor: ranks/dtensor.c) and no checkpoints. */
#include "wire/torchfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

static const char FROM_TYPE[] = "torch._tensor._rebuild_from_type_v2";

enum { MAX_PICKLE_BYTES = 1 << 28, MAX_SMALL_BYTES = 64, MAX_WRAPPERS = 4 };

/* -- the archive -- */

/* Files without the record (torch 2.0) are little-endian, as every writer then was by default. */
static int read_byteorder(struct uns_torchfile *file, struct uns_arena *arena, struct uns_err *err)
{
	const struct uns_zip_record *rec = uns_zip_find(&file->zip, "byteorder");
	struct uns_span text;

	if (!rec)
		return 0;
	UNS_TRY(uns_zip_read(file->r, rec, MAX_SMALL_BYTES, arena, &text, err));
	if (uns_span_left(&text) == 3 && memcmp(text.p, "big", 3) == 0)
		file->big_endian = true;
	else if (uns_span_left(&text) != 6 || memcmp(text.p, "little", 6) != 0)
		return uns_fail(err, -EBADMSG, "the byteorder record is neither little nor big");
	return 0;
}

int uns_torchfile_open_traced(const struct uns_reader *r, struct uns_arena *arena, struct uns_torchfile *out,
			      struct uns_span *pickle, struct uns_pickle_trace *trace, struct uns_err *err)
{
	const struct uns_zip_record *rec;
	struct uns_span in;

	*out = (struct uns_torchfile){ .r = r };
	UNS_TRY(uns_zip_open(r, arena, &out->zip, err));
	rec = uns_zip_find(&out->zip, "data.pkl");
	if (!rec)
		return uns_fail(err, -EBADMSG, "it has no data.pkl: torch.save did not write it");
	UNS_TRY(uns_zip_read(r, rec, MAX_PICKLE_BYTES, arena, pickle, err));
	UNS_TRY(read_byteorder(out, arena, err));
	in = *pickle;
	return uns_pickle_parse_traced(&in, arena, &out->root, trace, err);
}

int uns_torchfile_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_torchfile *out,
		       struct uns_err *err)
{
	struct uns_span unused;

	return uns_torchfile_open_traced(r, arena, out, &unused, NULL, err);
}

bool uns_torchfile_peek(struct uns_span head, struct uns_arena *arena, const struct uns_value **out)
{
	return uns_zip_first(&head, "data.pkl") && uns_pickle_parse(&head, arena, out, NULL) == 0;
}

/* -- tensors -- */

static bool is_call(const struct uns_value *v, const char *function)
{
	return v && v->kind == UNS_VALUE_OBJECT && uns_value_is(v, function);
}

static bool is_plain_class(const struct uns_value *v)
{
	return uns_value_is(v, "torch.Tensor") || uns_value_is(v, "torch._tensor.Tensor") ||
	       uns_value_is(v, "torch.nn.parameter.Parameter");
}

/* The call that rebuilds a tensor, without the wrappers around it. */
struct call {
	const struct uns_value *args;
	bool v3; /* untyped storage: the dtype is an argument */
};

static bool is_rebuild(const struct uns_value *function, bool *v3)
{
	*v3 = uns_value_is(function, "torch._utils._rebuild_tensor_v3");
	return *v3 || uns_value_is(function, "torch._utils._rebuild_tensor_v2");
}

static bool is_parameter(const struct uns_value *v)
{
	return is_call(v, "torch._utils._rebuild_parameter") ||
	       is_call(v, "torch._utils._rebuild_parameter_with_state");
}

/* Subclasses whose elements are those of the tensor in one of their fields. */
static const struct {
	const char *cls, *field;
} wrapping[] = {
	/* float8 training: cast when FSDP gathers it */
	{ "torchao.float8.fsdp_utils.WeightWithDynamicFloat8CastTensor", "_tensor" },
};

/* The tensor that _rebuild_from_type_v2(function, class, args, state) wraps, or NULL. */
static const struct uns_value *wrapped(const struct uns_value *args)
{
	size_t i;

	if (!uns_value_is(uns_value_at(args, 0), "torch._utils._rebuild_wrapper_subclass"))
		return NULL;
	for (i = 0; i < sizeof(wrapping) / sizeof(wrapping[0]); i++)
		if (uns_value_is(uns_value_at(args, 1), wrapping[i].cls))
			return uns_value_get(uns_value_at(args, 3), wrapping[i].field);
	return NULL;
}

/* Parameters wrap a tensor; tensors and parameters with Python attributes are wrapped again. */
static bool find_call(const struct uns_value *v, struct call *out)
{
	int depth;

	for (depth = 0; v && v->kind == UNS_VALUE_OBJECT && depth < MAX_WRAPPERS; depth++) {
		out->args = v->object.args;
		if (is_rebuild(v, &out->v3))
			return out->args != NULL;
		if (is_parameter(v)) {
			v = uns_value_at(out->args, 0);
		} else if (!is_call(v, FROM_TYPE)) {
			return false;
		} else if (is_plain_class(uns_value_at(out->args, 1)) &&
			   is_rebuild(uns_value_at(out->args, 0), &out->v3)) {
			out->args = uns_value_at(out->args, 2);
			return out->args != NULL;
		} else {
			v = wrapped(out->args);
		}
	}
	return false;
}

bool uns_torch_is_tensor(const struct uns_value *v)
{
	struct call call;

	return find_call(v, &call);
}

/* Fail for what find_call does not find. */
static int fail_unreadable(const struct uns_value *v, struct uns_err *err)
{
	const struct uns_value *cls = NULL;
	int depth;

	for (depth = 0; is_parameter(v) && depth < MAX_WRAPPERS; depth++)
		v = uns_value_at(v->object.args, 0);
	if (!v || v->kind != UNS_VALUE_OBJECT)
		return uns_fail(err, -EBADMSG, "not a tensor");
	if (is_call(v, FROM_TYPE))
		cls = uns_value_at(v->object.args, 1);
	return cls && cls->cls ? uns_fail(err, -ENOTSUP, "a tensor of class %s", cls->cls)
			       : uns_fail(err, -ENOTSUP, "a tensor of a form that unshard does not know: %s", v->cls);
}

static int parse_dims(const struct uns_value *v, uint64_t *dims, size_t *n, struct uns_err *err)
{
	const struct uns_value *seq = v;

	if (is_call(v, "torch.Size"))
		seq = uns_value_at(v->object.args, 0);
	if (uns_value_at(seq, UNS_MAX_DIMS))
		return uns_fail(err, -ENOTSUP, "a tensor of more than %d dimensions", UNS_MAX_DIMS);
	if (!uns_value_dims(v, dims, UNS_MAX_DIMS, n))
		return uns_fail(err, -EBADMSG, "a tensor's size or stride is not a list of counts");
	return 0;
}

static int parse_shape(const struct call *call, struct uns_torch_tensor *out, struct uns_err *err)
{
	size_t n_strides;

	if (!uns_value_u64(uns_value_at(call->args, 1), &out->first_elem))
		return uns_fail(err, -EBADMSG, "a tensor's storage offset is not a count");
	UNS_TRY(parse_dims(uns_value_at(call->args, 2), out->dims, &out->n_dims, err));
	UNS_TRY(parse_dims(uns_value_at(call->args, 3), out->stride_elems, &n_strides, err));
	if (n_strides != out->n_dims)
		return uns_fail(err, -EBADMSG, "a tensor of %zu dimensions with %zu strides", out->n_dims, n_strides);
	return 0;
}

/* The conjugate and negative bits change what the bytes mean. */
static bool has_metadata(const struct call *call)
{
	const struct uns_value *meta = uns_value_at(call->args, call->v3 ? 7 : 6);

	return meta && meta->kind != UNS_VALUE_NONE && !(meta->kind == UNS_VALUE_DICT && meta->n == 0);
}

int uns_torch_readable(const struct uns_value *v, struct uns_err *err)
{
	struct call call;

	if (!find_call(v, &call))
		return fail_unreadable(v, err);
	if (has_metadata(&call))
		return uns_fail(err, -ENOTSUP, "a tensor with metadata (conjugate or negative bit)");
	return 0;
}

static const char *name_in_torch(const struct uns_value *v)
{
	const char *cls = v && v->kind == UNS_VALUE_GLOBAL ? v->cls : NULL;

	return cls && strncmp(cls, "torch.", 6) == 0 ? cls + 6 : NULL;
}

/* The element type, and what the storage's numel counts: elements, or bytes when untyped. */
static int parse_dtype(const struct call *call, const struct uns_value *storage_class, struct uns_torch_tensor *out,
		       uint64_t *unit_bytes, struct uns_err *err)
{
	const struct uns_value *v = call->v3 ? uns_value_at(call->args, 6) : storage_class;
	const char *name = name_in_torch(v);
	enum uns_dtype stored;

	if (!name)
		return uns_fail(err, -EBADMSG, "a tensor without a dtype");
	out->dtype = call->v3 ? uns_dtype_of_torch(name) : uns_dtype_of_storage(name);
	if (out->dtype == UNS_DTYPE_NONE)
		return uns_fail(err, -ENOTSUP, "a tensor of unknown dtype torch.%s", name);
	*unit_bytes = uns_dtype_size(out->dtype);
	if (uns_value_is(storage_class, "torch.storage.UntypedStorage")) {
		*unit_bytes = 1;
	} else if (call->v3) {
		name = name_in_torch(storage_class);
		stored = name ? uns_dtype_of_storage(name) : UNS_DTYPE_NONE;
		if (stored == UNS_DTYPE_NONE)
			return uns_fail(err, -ENOTSUP, "a tensor in a storage of unknown dtype");
		*unit_bytes = uns_dtype_size(stored);
	}
	return 0;
}

static int find_storage(const struct uns_torchfile *file, const char *key, const struct uns_zip_record **out,
			struct uns_err *err)
{
	char name[64];
	int n = snprintf(name, sizeof(name), "data/%s", key);

	*out = n < (int)sizeof(name) ? uns_zip_find(&file->zip, name) : NULL;
	return *out ? 0 : uns_fail(err, -EBADMSG, "the record data/%.40s is missing", key);
}

static int parse_storage(const struct uns_torchfile *file, const struct call *call, struct uns_torch_tensor *out,
			 struct uns_err *err)
{
	const struct uns_value *id = uns_value_at(call->args, 0), *tag;
	const struct uns_zip_record *rec;
	uint64_t numel, unit = 0, bytes;
	const char *kind;

	tag = is_call(id, UNS_PERSISTENT_ID) ? id->object.args : NULL;
	kind = uns_value_str(uns_value_at(tag, 0));
	out->key = uns_value_str(uns_value_at(tag, 2));
	if (!kind || strcmp(kind, "storage") != 0 || !out->key || !uns_value_u64(uns_value_at(tag, 4), &numel))
		return uns_fail(err, -EBADMSG, "a tensor without a valid storage");
	UNS_TRY(parse_dtype(call, uns_value_at(tag, 1), out, &unit, err));
	UNS_TRY(find_storage(file, out->key, &rec, err));
	if (!uns_u64_mul(numel, unit, &bytes) || bytes != rec->size_bytes)
		return uns_fail(err, -EBADMSG,
				"the record data/%s has %" PRIu64 " bytes; expected %" PRIu64 " elements of %" PRIu64
				" bytes",
				out->key, rec->size_bytes, numel, unit);
	out->storage_bytes = rec->size_bytes;
	out->crc32 = rec->crc32;
	return uns_zip_data(file->r, rec, &out->data_bytes, err);
}

static bool is_empty(const struct uns_torch_tensor *t)
{
	size_t i;

	for (i = 0; i < t->n_dims; i++)
		if (t->dims[i] == 0)
			return true;
	return false;
}

/* The last element's index, and the number of elements; false on overflow. */
static bool measure(const struct uns_torch_tensor *t, uint64_t *last, uint64_t *elems)
{
	uint64_t step;
	size_t i;

	*last = t->first_elem;
	*elems = 1;
	for (i = 0; i < t->n_dims; i++)
		if (!uns_u64_mul(t->dims[i] - 1, t->stride_elems[i], &step) || !uns_u64_add(*last, step, last) ||
		    !uns_u64_mul(*elems, t->dims[i], elems))
			return false;
	return true;
}

static int check_inside(const struct uns_torch_tensor *t, struct uns_err *err)
{
	uint64_t last, elems, size = uns_dtype_size(t->dtype), bytes;

	if (is_empty(t))
		return 0;
	if (!measure(t, &last, &elems) || !uns_u64_mul(elems, size, &bytes) || bytes > INT64_MAX ||
	    last >= t->storage_bytes / size)
		return uns_fail(err, -EBADMSG,
				"a tensor reaches past the end of its storage data/%s of %" PRIu64 " bytes", t->key,
				t->storage_bytes);
	return 0;
}

static bool is_contiguous(const struct uns_torch_tensor *t)
{
	uint64_t want = 1;
	size_t i;

	if (is_empty(t))
		return true;
	for (i = t->n_dims; i-- > 0;) {
		if (t->dims[i] != 1 && t->stride_elems[i] != want)
			return false;
		want *= t->dims[i];
	}
	return true;
}

int uns_torch_tensor(const struct uns_torchfile *file, const struct uns_value *v, struct uns_torch_tensor *out,
		     struct uns_err *err)
{
	struct call call;

	*out = (struct uns_torch_tensor){ 0 };
	UNS_TRY(uns_torch_readable(v, err));
	find_call(v, &call);
	if (file->big_endian)
		return uns_fail(err, -ENOTSUP, "the tensors are big-endian");
	UNS_TRY(parse_shape(&call, out, err));
	UNS_TRY(parse_storage(file, &call, out, err));
	UNS_TRY(check_inside(out, err));
	out->contiguous = is_contiguous(out);
	return 0;
}
