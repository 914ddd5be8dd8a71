/* Writes values as pickles of protocol 2, which wire/pickle.c reads. Owns the choice of opcodes; does not know
 * checkpoints. */
#include "wire/pickle_emit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NODES = 50 * 1000 * 1000, MAX_DEPTH = 100, MAX_MEMO = 64 };

struct emitter {
	struct uns_text *out;
	const struct uns_pickle_tensor *tensors;
	size_t n_tensors;
	const struct uns_pickle_class *classes;
	struct uns_err *err;
	/* What was written already and may be fetched from the memo: objects, and names (module and
	 * name). The index is the memo's number. */
	struct {
		const struct uns_value *v;
		const char *module, *name;
		size_t module_len;
	} memo[MAX_MEMO];
	size_t n_memo;
};

static int emit_value(struct emitter *e, const struct uns_value *v);

static void op(struct emitter *e, char code)
{
	uns_text_add(e->out, &code, 1);
}

static void emit_int(struct emitter *e, int64_t i)
{
	if (i >= 0 && i < 256) {
		op(e, 'K');
		uns_text_le(e->out, (uint64_t)i, 1);
	} else if (i >= 0 && i < 65536) {
		op(e, 'M');
		uns_text_le(e->out, (uint64_t)i, 2);
	} else if (i >= INT32_MIN && i <= INT32_MAX) {
		op(e, 'J');
		uns_text_le(e->out, (uint64_t)i, 4);
	} else {
		uns_text_add(e->out, "\x8a\x08", 2); /* LONG1 of 8 bytes */
		uns_text_le(e->out, (uint64_t)i, 8);
	}
}

static int emit_str(struct emitter *e, const char *s, size_t n)
{
	if (n > UINT32_MAX)
		return uns_fail(e->err, -ENOTSUP, "a string of %zu bytes is too long to pickle", n);
	op(e, 'X');
	uns_text_le(e->out, n, 4);
	uns_text_add(e->out, s, n);
	return 0;
}

/* -- the memo -- */

static void memo_fetch(struct emitter *e, size_t i)
{
	op(e, 'h');
	uns_text_le(e->out, i, 1);
}

/* Puts what was just written into the memo. Returns false if the memo is full: then it is written again each time. */
static bool memo_add(struct emitter *e)
{
	if (e->n_memo == MAX_MEMO)
		return false;
	op(e, 'q');
	uns_text_le(e->out, e->n_memo++, 1);
	return true;
}

/* Files with classes of their own repeat some names for every tensor, so names go through the memo;
 * others have few names. */
static void emit_global_len(struct emitter *e, const char *module, size_t len, const char *name)
{
	size_t i;

	for (i = 0; e->classes && i < e->n_memo; i++)
		if (e->memo[i].name && e->memo[i].module_len == len && memcmp(e->memo[i].module, module, len) == 0 &&
		    strcmp(e->memo[i].name, name) == 0) {
			memo_fetch(e, i);
			return;
		}
	op(e, 'c');
	uns_text_printf(e->out, "%.*s\n%s\n", (int)len, module, name);
	if (!e->classes || !memo_add(e))
		return;
	e->memo[e->n_memo - 1].module = module;
	e->memo[e->n_memo - 1].module_len = len;
	e->memo[e->n_memo - 1].name = name;
}

static void emit_global(struct emitter *e, const char *module, const char *name)
{
	emit_global_len(e, module, strlen(module), name);
}

/* Ends a tuple, behind its elements. Tuples of 1 to 3 have opcodes of their own, which need no mark. */
static void close_tuple(struct emitter *e, size_t n)
{
	static const char code[] = { ')', '\x85', '\x86', '\x87' };

	op(e, n < sizeof(code) ? code[n] : 't');
}

static int emit_items(struct emitter *e, const struct uns_value *v)
{
	size_t i;

	if (!v->n)
		return 0;
	op(e, '(');
	for (i = 0; i < v->n; i++)
		UNS_TRY(emit_value(e, v->item[i]));
	op(e, 'e');
	return 0;
}

static int emit_pairs(struct emitter *e, const struct uns_value *v)
{
	size_t i;

	if (!v->n)
		return 0;
	op(e, '(');
	for (i = 0; i < v->n; i++) {
		UNS_TRY(emit_value(e, v->pair[i].key));
		UNS_TRY(emit_value(e, v->pair[i].value));
	}
	op(e, 'u');
	return 0;
}

static int refuse_class(struct emitter *e, const char *cls)
{
	return uns_fail(e->err, -ENOTSUP,
			"an object of class %s cannot be written so that torch.load reads it with weights_only=True",
			cls ? cls : "?");
}

/* Of a subclass of dict, but OrderedDict, the pairs. Only an OrderedDict may have attributes: a module's state dict has
 * _metadata. */
static int emit_dict(struct emitter *e, const struct uns_value *v)
{
	const bool ordered = v->cls && strcmp(v->cls, "collections.OrderedDict") == 0;

	if (v->state && !ordered)
		return refuse_class(e, v->cls);
	if (ordered) {
		emit_global(e, "collections", "OrderedDict");
		uns_text_add(e->out, ")R", 2);
	} else {
		op(e, '}');
	}
	UNS_TRY(emit_pairs(e, v));
	if (!v->state)
		return 0;
	UNS_TRY(emit_value(e, v->state));
	op(e, 'b');
	return 0;
}

/* -- tensors -- */

static void emit_dims(struct emitter *e, const uint64_t *dims, size_t n)
{
	size_t i;

	if (n > 3)
		op(e, '(');
	for (i = 0; i < n; i++)
		emit_int(e, (int64_t)dims[i]);
	close_tuple(e, n);
}

static uint64_t c_strides(const struct uns_pickle_tensor *t, uint64_t *stride)
{
	uint64_t elems = 1;
	size_t i;

	for (i = t->n_dims; i-- > 0;) {
		stride[i] = elems;
		elems *= t->dims[i] ? t->dims[i] : 1; /* as torch counts strides of empty tensors */
	}
	for (i = 0, elems = 1; i < t->n_dims; i++)
		elems *= t->dims[i];
	return elems;
}

static void emit_storage(struct emitter *e, size_t index, const struct uns_dtype_info *dtype, uint64_t elems)
{
	char key[24];

	snprintf(key, sizeof(key), "%zu", index);
	op(e, '(');
	emit_str(e, "storage", 7);
	if (dtype->storage)
		emit_global(e, "torch", dtype->storage);
	else
		emit_global(e, "torch.storage", "UntypedStorage");
	emit_str(e, key, strlen(key));
	emit_str(e, "cpu", 3);
	emit_int(e, (int64_t)(dtype->storage ? elems : elems * dtype->size_bytes));
	uns_text_add(e->out, "tQ", 2);
}

static int emit_tensor(struct emitter *e, size_t index)
{
	uint64_t stride[UNS_MAX_DIMS] = { 0 }, elems;
	const struct uns_pickle_tensor *t;
	const struct uns_dtype_info *dtype;

	if (index >= e->n_tensors || e->tensors[index].n_dims > UNS_MAX_DIMS)
		return uns_fail(e->err, -EINVAL, "tensor %zu is not in the table", index);
	t = &e->tensors[index];
	dtype = uns_dtype_info(t->dtype);
	elems = c_strides(t, stride);
	emit_global(e, "torch._utils", dtype->storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
	op(e, '(');
	emit_storage(e, index, dtype, elems);
	emit_int(e, 0);
	emit_dims(e, t->dims, t->n_dims);
	emit_dims(e, stride, t->n_dims);
	op(e, '\x89');
	emit_global(e, "collections", "OrderedDict");
	uns_text_add(e->out, ")R", 2);
	if (!dtype->storage)
		emit_global(e, "torch", dtype->torch);
	uns_text_add(e->out, "tR", 2);
	return 0;
}

/* -- names: only those that weights_only=True accepts, or that the caller allows -- */

static void emit_name(struct emitter *e, const char *name)
{
	const char *dot = strrchr(name, '.');

	emit_global_len(e, name, (size_t)(dot - name), dot + 1);
}

static const struct uns_pickle_class *class_of(const struct emitter *e, const struct uns_value *v)
{
	const struct uns_pickle_class *c = e->classes;

	while (c && c->name && !uns_value_is(v, c->name))
		c++;
	return c && c->name && strchr(c->name, '.') ? c : NULL;
}

static int emit_global_value(struct emitter *e, const struct uns_value *v)
{
	const struct uns_pickle_class *c = class_of(e, v);

	if (c) {
		emit_name(e, c->name);
		return 0;
	}
	if (!v->cls || strncmp(v->cls, "torch.", 6) != 0 || uns_dtype_of_torch(v->cls + 6) == UNS_DTYPE_NONE)
		return refuse_class(e, v->cls);
	emit_global(e, "torch", v->cls + 6);
	return 0;
}

static int emit_object(struct emitter *e, const struct uns_value *v)
{
	const struct uns_pickle_class *c = v->object.args ? class_of(e, v) : NULL;
	size_t i;

	if (uns_value_is(v, "torch.Size") && v->object.args) {
		emit_global(e, "torch", "Size");
		UNS_TRY(emit_value(e, v->object.args));
		op(e, 'R');
		return 0;
	}
	if (!c)
		return refuse_class(e, v->cls);
	for (i = 0; c->once && i < e->n_memo; i++)
		if (e->memo[i].v == v) {
			memo_fetch(e, i);
			return 0;
		}
	emit_name(e, c->name);
	UNS_TRY(emit_value(e, v->object.args));
	op(e, c->called ? 'R' : '\x81');
	if (v->state) {
		UNS_TRY(emit_value(e, v->state));
		op(e, 'b');
	}
	if (c->once && memo_add(e))
		e->memo[e->n_memo - 1].v = v;
	return 0;
}

static int emit_value(struct emitter *e, const struct uns_value *v)
{
	uint64_t bits;
	unsigned i;

	switch (v->kind) {
	case UNS_VALUE_NONE:
		op(e, 'N');
		return 0;
	case UNS_VALUE_BOOL:
		op(e, v->b ? '\x88' : '\x89');
		return 0;
	case UNS_VALUE_INT:
		emit_int(e, v->i);
		return 0;
	case UNS_VALUE_BIGINT:
		if (v->n > 255)
			return uns_fail(e->err, -ENOTSUP, "an integer of %u bytes is too long to pickle", v->n);
		op(e, '\x8a');
		uns_text_le(e->out, v->n, 1);
		uns_text_add(e->out, v->bytes, v->n);
		return 0;
	case UNS_VALUE_FLOAT:
		memcpy(&bits, &v->f, sizeof(bits));
		op(e, 'G');
		for (i = 0; i < 8; i++)
			op(e, (char)(bits >> (56 - 8 * i)));
		return 0;
	case UNS_VALUE_STR:
		return emit_str(e, v->bytes, v->n);
	case UNS_VALUE_LIST: /* of a subclass of list, the elements */
		if (v->state)
			return refuse_class(e, v->cls);
		op(e, ']');
		return emit_items(e, v);
	case UNS_VALUE_TUPLE:
		if (v->n > 3)
			op(e, '(');
		for (i = 0; i < v->n; i++)
			UNS_TRY(emit_value(e, v->item[i]));
		close_tuple(e, v->n);
		return 0;
	case UNS_VALUE_SET:
		emit_global(e, "__builtin__", "set");
		op(e, ']');
		UNS_TRY(emit_items(e, v));
		uns_text_add(e->out, "\x85R", 2);
		return 0;
	case UNS_VALUE_DICT:
		return emit_dict(e, v);
	case UNS_VALUE_GLOBAL:
		return emit_global_value(e, v);
	case UNS_VALUE_OBJECT:
		return emit_object(e, v);
	case UNS_VALUE_TENSOR:
		return emit_tensor(e, v->tensor);
	case UNS_VALUE_BYTES:
	case UNS_VALUE_RECORD:
		break; /* unshard writes none */
	}
	return uns_fail(e->err, -ENOTSUP, "bytes cannot be written in a protocol 2 pickle");
}

int uns_pickle_emit(const struct uns_value *root, const struct uns_pickle_tensor *tensors, size_t n_tensors,
		    const struct uns_pickle_class *classes, struct uns_text *out, struct uns_err *err)
{
	struct emitter e = { .out = out, .tensors = tensors, .n_tensors = n_tensors, .classes = classes, .err = err };

	if (!uns_value_fits(root, MAX_NODES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "the value is nested too deeply to be written");
	uns_text_add(out, "\x80\x02", 2);
	UNS_TRY(emit_value(&e, root));
	op(&e, '.');
	return out->failed ? uns_oom(err) : 0;
}

int uns_pickle_emit_behind(struct uns_span front, const struct uns_value *root, const struct uns_pickle_tensor *tensors,
			   size_t n_tensors, struct uns_text *out, struct uns_err *err)
{
	struct emitter e = { .out = out, .tensors = tensors, .n_tensors = n_tensors, .err = err };

	if (root->kind != UNS_VALUE_DICT || !uns_value_fits(root, MAX_NODES, MAX_DEPTH))
		return uns_fail(err, -ENOTSUP, "the value is not a dict, or is nested too deeply");
	uns_text_add(out, front.p, uns_span_left(&front));
	UNS_TRY(emit_pairs(&e, root));
	op(&e, '.');
	return out->failed ? uns_oom(err) : 0;
}
