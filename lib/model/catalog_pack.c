/* The form: "UNSC", the version, then counts and fields in the order of the structs, every number a
 * varint (signed ones zigzag), every text written once and named by its number afterwards. Knows
 * nothing of where the bytes are kept. */
#include "model/catalog_pack.h"

#include <stddef.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

static const char magic[4] = { 'U', 'N', 'S', 'C' };

enum {
	MAX_VALUE_NODES = 1 << 20, /* of one value, written out as a tree */
	MAX_VALUE_DEPTH = 64,
};

/* A text is NULL, new, or one that was written before. */
enum { TEXT_NULL, TEXT_NEW, TEXT_FIRST };

/* Facts that are yes or no. */
static const size_t flags[] = {
	offsetof(struct uns_facts, of_trainer),       offsetof(struct uns_facts, is_one_file),
	offsetof(struct uns_facts, is_weights_only),  offsetof(struct uns_facts, is_in_parts),
	offsetof(struct uns_facts, is_published),     offsetof(struct uns_facts, is_pretrained),
	offsetof(struct uns_facts, is_pipeline),      offsetof(struct uns_facts, wants_config),
	offsetof(struct uns_facts, has_rng_of_ranks), offsetof(struct uns_facts, has_engine_state),
	offsetof(struct uns_facts, is_round_robin),
};

enum { N_FLAGS = sizeof(flags) / sizeof(*flags) };

static bool *flag_of(struct uns_facts *facts, size_t i)
{
	return (bool *)((char *)facts + flags[i]);
}

/* -- writing -- */

struct writer {
	struct uns_text *out;
	struct uns_map texts; /* text -> TEXT_FIRST + number */
	uintptr_t n_texts;
};

static void w_u64(struct writer *w, uint64_t v)
{
	unsigned char b[10];
	size_t n = 0;

	do {
		b[n++] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		v >>= 7;
	} while (v);
	uns_text_add(w->out, b, n);
}

static void w_i64(struct writer *w, int64_t v)
{
	w_u64(w, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

static void w_bytes(struct writer *w, const char *p, size_t n)
{
	w_u64(w, n);
	uns_text_add(w->out, p, n);
}

static void w_text(struct writer *w, const char *s)
{
	void *known = s ? uns_map_get(&w->texts, s) : NULL;

	if (!s) {
		w_u64(w, TEXT_NULL);
	} else if (known) {
		w_u64(w, (uint64_t)(uintptr_t)known);
	} else {
		w_u64(w, TEXT_NEW);
		w_bytes(w, s, strlen(s));
		if (!uns_map_put(&w->texts, s, (void *)(TEXT_FIRST + w->n_texts++), NULL))
			w->out->failed = true;
	}
}

static int w_value(struct writer *w, const struct uns_value *v, struct uns_err *err);

static int w_values(struct writer *w, const struct uns_value *const *v, size_t n,
		    struct uns_err *err)
{
	size_t i;

	for (i = 0; i < n; i++)
		UNS_TRY(w_value(w, v[i], err));
	return 0;
}

static int w_content(struct writer *w, const struct uns_value *v, struct uns_err *err)
{
	size_t i;
	uint64_t bits;

	switch (v->kind) {
	case UNS_VALUE_NONE:
	case UNS_VALUE_GLOBAL:
		return 0;
	case UNS_VALUE_BOOL:
		w_u64(w, v->b);
		return 0;
	case UNS_VALUE_INT:
		w_i64(w, v->i);
		return 0;
	case UNS_VALUE_FLOAT:
		memcpy(&bits, &v->f, sizeof(bits));
		w_u64(w, bits);
		return 0;
	case UNS_VALUE_BIGINT:
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
		w_bytes(w, v->bytes.p, v->bytes.n);
		return 0;
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_SET:
		w_u64(w, v->seq.n);
		return w_values(w, v->seq.v, v->seq.n, err);
	case UNS_VALUE_DICT:
		w_u64(w, v->dict.n);
		for (i = 0; i < v->dict.n; i++) {
			UNS_TRY(w_value(w, v->dict.key[i], err));
			UNS_TRY(w_value(w, v->dict.v[i], err));
		}
		return 0;
	case UNS_VALUE_OBJECT:
		return w_value(w, v->object.args, err);
	case UNS_VALUE_TENSOR:
		break;
	}
	return uns_fail(err, -ENOTSUP, "a value that is not plain data cannot be packed");
}

/* NULL is written as 0, kinds as 1 + kind. Bounded: uns_value_fits was asked. */
static int w_value(struct writer *w, const struct uns_value *v, struct uns_err *err)
{
	w_u64(w, v ? 1 + (uint64_t)v->kind : 0);
	if (!v)
		return 0;
	w_text(w, v->cls);
	UNS_TRY(w_content(w, v, err));
	return w_value(w, v->state, err);
}

static int w_root_value(struct writer *w, const struct uns_value *v, struct uns_err *err)
{
	if (v && !uns_value_fits(v, MAX_VALUE_NODES, MAX_VALUE_DEPTH))
		return uns_fail(err, -ENOTSUP, "a value is too large to be packed");
	return w_value(w, v, err);
}

static int w_files(struct writer *w, const struct uns_catalog *cat, const struct uns_root *root,
		   struct uns_err *err)
{
	const struct uns_file *f = cat->files, *end = f + cat->n_files;

	for (w_u64(w, cat->n_files); f < end; f++) {
		if (f->root != root)
			return uns_fail(err, -ENOTSUP, "%s lies elsewhere", f->path);
		w_text(w, f->path);
		w_u64(w, f->missing);
		w_u64(w, f->stat.kind);
		w_u64(w, f->stat.id.dev);
		w_u64(w, f->stat.id.ino);
		w_u64(w, f->stat.id.size);
		w_i64(w, f->stat.id.mtime_ns);
		w_i64(w, f->stat.id.ctime_ns);
	}
	return 0;
}

static void w_dims(struct writer *w, const uint64_t *dim, uint32_t n)
{
	uint32_t d;

	for (d = 0; d < n; d++)
		w_u64(w, dim[d]);
}

static void w_piece(struct writer *w, const struct uns_piece *p)
{
	w_u64(w, p->kind);
	if (p->kind == UNS_PIECE_RANGE) {
		w_u64(w, p->range.first);
		w_u64(w, p->range.count);
	} else {
		w_u64(w, p->box.n);
		w_dims(w, p->box.lo, p->box.n);
		w_dims(w, p->box.len, p->box.n);
	}
	w_u64(w, p->file);
	w_i64(w, p->rank);
	w_u64(w, p->container);
	w_u64(w, p->codec);
	w_u64(w, p->offset_bytes);
	w_u64(w, p->length_bytes);
	w_u64(w, p->crc32);
	w_u64(w, p->stride_elems != NULL);
	if (p->stride_elems)
		w_dims(w, p->stride_elems, p->kind == UNS_PIECE_BOX ? p->box.n : 0);
}

static void w_tensor(struct writer *w, const struct uns_catalog *cat, const struct uns_tensor *t)
{
	uint32_t i;

	w_text(w, t->name);
	w_text(w, t->key);
	w_text(w, t->root);
	w_text(w, t->state);
	w_u64(w, t->role);
	w_u64(w, t->dtype);
	w_u64(w, t->shape.n);
	w_dims(w, t->shape.dim, t->shape.n);
	w_i64(w, t->group);
	w_i64(w, t->position);
	w_u64(w, t->alias_of);
	w_u64(w, t->inferred);
	w_u64(w, t->sharded);
	w_u64(w, t->n_pieces);
	for (i = 0; i < t->n_pieces; i++)
		w_piece(w, &cat->pieces[t->first_piece + i]);
}

static int w_group(struct writer *w, const struct uns_group *g, struct uns_err *err)
{
	size_t i;

	w_text(w, g->root);
	w_u64(w, g->guessed);
	w_u64(w, g->bare);
	w_u64(w, g->n_params);
	for (i = 0; i < g->n_params; i++)
		w_text(w, g->param[i]);
	return w_root_value(w, g->hyper, err);
}

static int w_named_value(struct writer *w, const struct uns_named_value *v, struct uns_err *err)
{
	w_text(w, v->name);
	w_text(w, v->root);
	w_u64(w, v->file);
	w_u64(w, v->offset_bytes);
	w_u64(w, v->length_bytes);
	w_u64(w, v->codec);
	return w_root_value(w, v->value, err);
}

static void w_datum(struct writer *w, const struct uns_datum *d)
{
	w_u64(w, d->kind);
	if (d->kind == UNS_DATUM_TEXT)
		w_text(w, d->text);
	else if (d->kind == UNS_DATUM_NUMBER)
		w_i64(w, d->number);
}

static void w_finding(struct writer *w, const struct uns_finding *f)
{
	size_t i, n = 0;

	w_u64(w, f->id);
	w_u64(w, f->scope);
	w_i64(w, f->code);
	w_text(w, f->checkpoint);
	w_text(w, f->file);
	w_text(w, f->tensor);
	w_datum(w, &f->rank);
	w_datum(w, &f->expected);
	w_datum(w, &f->found);
	while (n < UNS_FINDING_ARGS && f->arg[n].name)
		n++;
	w_u64(w, n);
	for (i = 0; i < n; i++) {
		w_text(w, f->arg[i].name);
		w_datum(w, &f->arg[i].is);
	}
}

static void w_beside(struct writer *w, const struct uns_catalog *cat)
{
	size_t i;

	w_u64(w, cat->n_companions);
	for (i = 0; i < cat->n_companions; i++) {
		w_text(w, cat->companions[i].name);
		w_u64(w, cat->companions[i].file);
		w_u64(w, cat->companions[i].shard);
	}
	w_u64(w, cat->n_findings);
	for (i = 0; i < cat->n_findings; i++)
		w_finding(w, &cat->findings[i]);
}

static void w_facts(struct writer *w, const struct uns_facts *facts)
{
	struct uns_facts copy = *facts;
	size_t i;

	w_text(w, facts->format);
	w_text(w, facts->framework);
	w_u64(w, facts->family);
	w_u64(w, facts->resumed_by);
	w_u64(w, facts->tracker);
	w_u64(w, facts->tracker_up);
	for (i = 0; i < N_FLAGS; i++)
		w_u64(w, *flag_of(&copy, i));
	w_i64(w, facts->step);
	w_i64(w, facts->world_size);
	w_u64(w, facts->finished);
	w_text(w, facts->units);
}

static int w_catalog(struct writer *w, const struct uns_catalog *cat, const struct uns_root *root,
		     struct uns_err *err)
{
	size_t i;

	w_text(w, cat->path);
	w_facts(w, &cat->facts);
	UNS_TRY(w_files(w, cat, root, err));
	w_u64(w, cat->n_tensors);
	for (i = 0; i < cat->n_tensors; i++)
		w_tensor(w, cat, &cat->tensors[i]);
	w_u64(w, cat->n_groups);
	for (i = 0; i < cat->n_groups; i++)
		UNS_TRY(w_group(w, &cat->groups[i], err));
	w_u64(w, cat->n_values);
	for (i = 0; i < cat->n_values; i++)
		UNS_TRY(w_named_value(w, &cat->values[i], err));
	w_beside(w, cat);
	return 0;
}

int uns_catalog_pack(const struct uns_catalog *cat, const struct uns_root *root,
		     struct uns_text *out, struct uns_err *err)
{
	struct writer w = { .out = out };
	int code;

	uns_text_add(out, magic, sizeof(magic));
	w_u64(&w, UNS_CATALOG_PACK_VERSION);
	code = w_catalog(&w, cat, root, err);
	uns_map_fini(&w.texts);
	if (code == 0 && out->failed)
		return uns_oom(err);
	return code;
}

/* -- reading: after the first thing that is wrong, everything reads as 0 and `bad` stays -- */

struct input {
	struct uns_span in;
	struct uns_catalog *cat;
	const char **texts;
	size_t n_texts, cap_texts;
	bool bad, no_memory;
};

static uint64_t r_u64(struct input *r)
{
	uint64_t v = 0;
	unsigned shift;
	uint8_t b;

	for (shift = 0; shift < 64; shift += 7) {
		if (!uns_take_u8(&r->in, &b) || (shift == 63 && b > 1))
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	r->bad = true;
	r->in.p = r->in.end;
	return 0;
}

static int64_t r_i64(struct input *r)
{
	uint64_t v = r_u64(r);

	return (int64_t)((v >> 1) ^ (0 - (v & 1)));
}

/* A number below `bound`. */
static uint64_t r_below(struct input *r, uint64_t bound)
{
	uint64_t v = r_u64(r);

	if (v < bound)
		return v;
	r->bad = true;
	return 0;
}

static int32_t r_i32(struct input *r)
{
	int64_t v = r_i64(r);

	r->bad |= v < INT32_MIN || v > INT32_MAX;
	return (int32_t)v;
}

/* How many elements follow, each of at least one byte: never more than there are bytes. */
static size_t r_count(struct input *r)
{
	return (size_t)r_below(r, (uint64_t)uns_span_left(&r->in) + 1);
}

static const char *r_bytes(struct input *r, size_t *n)
{
	const uint8_t *p;
	char *copy;

	*n = r_count(r);
	if (r->bad || !uns_span_take(&r->in, *n, &p)) {
		r->bad = true;
		*n = 0;
		return "";
	}
	copy = uns_arena_strn(&r->cat->arena, (const char *)p, *n);
	r->no_memory |= !copy;
	return copy ? copy : "";
}

static const char *r_new_text(struct input *r)
{
	size_t n;

	if (!UNS_HEAP_ROOM(r->texts, r->n_texts, r->cap_texts)) {
		r->bad = r->no_memory = true;
		return "";
	}
	return r->texts[r->n_texts++] = r_bytes(r, &n);
}

static const char *r_text_or_null(struct input *r)
{
	uint64_t v = r_below(r, TEXT_FIRST + (uint64_t)r->n_texts);

	if (v == TEXT_NULL)
		return NULL;
	return v == TEXT_NEW ? r_new_text(r) : r->texts[v - TEXT_FIRST];
}

static const char *r_text(struct input *r)
{
	const char *s = r_text_or_null(r);

	r->bad |= !s;
	return s ? s : "";
}

static void *r_room(struct input *r, size_t n, size_t size)
{
	void *p = r->bad ? NULL : uns_arena_alloc(&r->cat->arena, n, size);

	if (!p) {
		r->no_memory |= !r->bad;
		r->bad = true;
	}
	return p;
}

static const struct uns_value *r_value(struct input *r, unsigned depth);

static void r_seq(struct input *r, struct uns_value *v, unsigned depth)
{
	size_t n = r_count(r), i;

	v->seq.v = r_room(r, n, sizeof(*v->seq.v));
	for (i = 0; !r->bad && i < n; i++)
		r->bad |= !(v->seq.v[i] = r_value(r, depth));
	v->seq.n = r->bad ? 0 : n;
}

static void r_dict(struct input *r, struct uns_value *v, unsigned depth)
{
	size_t n = r_count(r), i;

	v->dict.key = r_room(r, n, sizeof(*v->dict.key));
	v->dict.v = r_room(r, n, sizeof(*v->dict.v));
	for (i = 0; !r->bad && i < n; i++) {
		v->dict.key[i] = r_value(r, depth);
		v->dict.v[i] = r_value(r, depth);
		r->bad |= !v->dict.key[i] || !v->dict.v[i];
	}
	v->dict.n = r->bad ? 0 : n;
}

static void r_content(struct input *r, struct uns_value *v, unsigned depth)
{
	uint64_t bits;

	switch (v->kind) {
	case UNS_VALUE_NONE:
	case UNS_VALUE_GLOBAL:
	case UNS_VALUE_TENSOR: /* never written: refused by its kind */
		return;
	case UNS_VALUE_BOOL:
		v->b = r_below(r, 2);
		return;
	case UNS_VALUE_INT:
		v->i = r_i64(r);
		return;
	case UNS_VALUE_FLOAT:
		bits = r_u64(r);
		memcpy(&v->f, &bits, sizeof(v->f));
		return;
	case UNS_VALUE_BIGINT:
	case UNS_VALUE_STR:
	case UNS_VALUE_BYTES:
		v->bytes.p = r_bytes(r, &v->bytes.n);
		return;
	case UNS_VALUE_LIST:
	case UNS_VALUE_TUPLE:
	case UNS_VALUE_SET:
		r_seq(r, v, depth);
		return;
	case UNS_VALUE_DICT:
		r_dict(r, v, depth);
		return;
	case UNS_VALUE_OBJECT:
		v->object.args = r_value(r, depth);
		return;
	}
}

static const struct uns_value *r_value(struct input *r, unsigned depth)
{
	uint64_t kind = r_below(r, 1 + (uint64_t)UNS_VALUE_TENSOR);
	struct uns_value *v;

	if (!kind)
		return NULL;
	r->bad |= depth > 2 * MAX_VALUE_DEPTH;
	v = r_room(r, 1, sizeof(*v));
	if (!v)
		return NULL;
	v->kind = (enum uns_value_kind)(kind - 1);
	v->cls = r_text_or_null(r);
	r_content(r, v, depth + 1);
	v->state = r_value(r, depth + 1);
	return v;
}

static int r_result(const struct input *r, struct uns_err *err)
{
	if (r->no_memory)
		return uns_oom(err);
	return r->bad ? uns_fail(err, -EBADMSG, "these bytes are not a packed catalog") : 0;
}

static int r_file(struct input *r, const struct uns_root *root, struct uns_err *err)
{
	struct uns_file was = { .path = r_text(r) };
	const struct uns_file *is;
	uint32_t file;

	was.missing = r_below(r, 2);
	was.stat.kind = (enum uns_kind)r_below(r, UNS_KIND_OTHER + 1);
	was.stat.id.dev = r_u64(r);
	was.stat.id.ino = r_u64(r);
	was.stat.id.size = r_u64(r);
	was.stat.id.mtime_ns = r_i64(r);
	was.stat.id.ctime_ns = r_i64(r);
	UNS_TRY(r_result(r, err));
	UNS_TRY(uns_catalog_add_file(r->cat, root, was.path, &file, err));
	is = &r->cat->files[file];
	was.stat.id.dev = is->stat.id.dev; /* a number of one mount */
	if (file != r->cat->n_files - 1)
		return uns_fail(err, -EBADMSG, "%s is listed twice", was.path);
	if (is->missing != was.missing || is->stat.kind != was.stat.kind ||
	    !uns_identity_equal(&is->stat.id, &was.stat.id))
		return uns_fail(err, -ESTALE, "%s has changed", was.path);
	return 0;
}

static void r_dims(struct input *r, uint64_t *dim, uint32_t n)
{
	uint32_t d;

	for (d = 0; d < n; d++)
		dim[d] = r_u64(r);
}

static void r_strides(struct input *r, struct uns_piece *p)
{
	uint32_t n = p->kind == UNS_PIECE_BOX ? p->box.n : 0;
	uint64_t *stride = r_room(r, n, sizeof(*stride));

	if (stride)
		r_dims(r, stride, n);
	p->stride_elems = stride;
}

static void r_piece(struct input *r, struct uns_piece *p)
{
	p->kind = (enum uns_piece_kind)r_below(r, UNS_PIECE_RANGE + 1);
	if (p->kind == UNS_PIECE_RANGE) {
		p->range.first = r_u64(r);
		p->range.count = r_u64(r);
	} else {
		p->box.n = (uint32_t)r_below(r, UNS_MAX_DIMS + 1);
		r_dims(r, p->box.lo, p->box.n);
		r_dims(r, p->box.len, p->box.n);
	}
	p->file = (uint32_t)r_below(r, r->cat->n_files);
	p->rank = r_i32(r);
	p->container = (enum uns_container)r_below(r, UNS_TORCH_ITEM + 1);
	p->codec = (enum uns_codec)r_below(r, UNS_CODEC_ZSTD + 1);
	p->offset_bytes = r_u64(r);
	p->length_bytes = r_u64(r);
	p->crc32 = (uint32_t)r_u64(r);
	if (r_below(r, 2))
		r_strides(r, p);
}

static int r_tensor(struct input *r, struct uns_err *err)
{
	struct uns_tensor t = { .name = r_text(r), .key = NULL };
	struct uns_piece piece;
	size_t n, i;

	t.key = r_text(r);
	t.root = r_text(r);
	t.state = r_text_or_null(r);
	t.role = (enum uns_role)r_below(r, UNS_ROLE_OTHER + 1);
	t.dtype = (enum uns_dtype)r_below(r, UNS_N_DTYPES);
	t.shape.n = (uint32_t)r_below(r, UNS_MAX_DIMS + 1);
	r_dims(r, t.shape.dim, t.shape.n);
	t.group = r_i32(r);
	t.position = r_i32(r);
	t.alias_of = (uint32_t)r_below(r, (uint64_t)UNS_NONE + 1);
	t.inferred = r_below(r, 2);
	t.sharded = r_below(r, 2);
	n = r_count(r);
	UNS_TRY(r_result(r, err));
	UNS_TRY(uns_catalog_add_tensor(r->cat, &t, NULL, err));
	for (i = 0; i < n; i++) {
		piece = (struct uns_piece){ 0 };
		r_piece(r, &piece);
		UNS_TRY(r_result(r, err));
		UNS_TRY(uns_catalog_add_piece(r->cat, &piece, err));
	}
	return 0;
}

static int r_group(struct input *r, struct uns_err *err)
{
	struct uns_group g = { .root = r_text(r) };
	size_t i;

	g.guessed = r_below(r, 2);
	g.bare = r_below(r, 2);
	g.n_params = r_count(r);
	g.param = r_room(r, g.n_params, sizeof(*g.param));
	for (i = 0; !r->bad && i < g.n_params; i++)
		g.param[i] = r_text(r);
	g.hyper = r_value(r, 0);
	UNS_TRY(r_result(r, err));
	return uns_catalog_add_group(r->cat, &g, err);
}

static int r_named_value(struct input *r, struct uns_err *err)
{
	struct uns_named_value v = { .name = r_text(r) };

	v.root = r_text(r);
	v.file = (uint32_t)r_below(r, (uint64_t)UNS_NONE + 1);
	v.offset_bytes = r_u64(r);
	v.length_bytes = r_u64(r);
	v.codec = (enum uns_codec)r_below(r, UNS_CODEC_ZSTD + 1);
	v.value = r_value(r, 0);
	r->bad |= !v.value && v.file >= r->cat->n_files;
	UNS_TRY(r_result(r, err));
	return uns_catalog_add_value(r->cat, &v, err);
}

static int r_companion(struct input *r, struct uns_err *err)
{
	const char *name = r_text(r);
	uint32_t file = (uint32_t)r_below(r, r->cat->n_files);
	bool shard = r_below(r, 2);

	UNS_TRY(r_result(r, err));
	return uns_catalog_add_companion(r->cat, name, file, shard, err);
}

static struct uns_datum r_datum(struct input *r)
{
	struct uns_datum d = { 0 };

	d.kind = (__typeof__(d.kind))r_below(r, UNS_DATUM_NUMBER + 1);
	if (d.kind == UNS_DATUM_TEXT)
		d.text = r_text(r);
	else if (d.kind == UNS_DATUM_NUMBER)
		d.number = r_i64(r);
	return d;
}

static int r_finding(struct input *r, struct uns_err *err)
{
	struct uns_finding f = { .id = (enum uns_finding_id)r_below(r, UNS_N_FINDINGS) };
	size_t i, n;

	f.scope = (enum uns_scope)r_below(r, UNS_SCOPE_SHARDED + 1);
	f.code = r_i32(r);
	f.checkpoint = r_text_or_null(r);
	f.file = r_text_or_null(r);
	f.tensor = r_text_or_null(r);
	f.rank = r_datum(r);
	f.expected = r_datum(r);
	f.found = r_datum(r);
	n = (size_t)r_below(r, UNS_FINDING_ARGS + 1);
	for (i = 0; i < n; i++) {
		f.arg[i].name = r_text(r);
		f.arg[i].is = r_datum(r);
	}
	UNS_TRY(r_result(r, err));
	return uns_catalog_add_finding(r->cat, &f, err);
}

static int r_list(struct input *r, int (*one)(struct input *r, struct uns_err *err),
		  struct uns_err *err)
{
	size_t n = r_count(r);

	UNS_TRY(r_result(r, err));
	for (; n; n--)
		UNS_TRY(one(r, err));
	return 0;
}

static int r_facts(struct input *r, struct uns_err *err)
{
	struct uns_facts *facts = &r->cat->facts;
	size_t i;

	if (strcmp(r_text(r), r->cat->path) != 0)
		r->bad = true;
	facts->format = r_text(r);
	facts->framework = r_text(r);
	facts->family = (enum uns_family)r_below(r, UNS_N_FAMILIES);
	facts->resumed_by = (unsigned)r_below(r, UNS_RESUMERS + 1);
	facts->tracker = (enum uns_tracker)r_below(r, UNS_N_TRACKERS);
	facts->tracker_up = (unsigned)r_below(r, UNS_TRACKER_UP_MAX + 1);
	for (i = 0; i < N_FLAGS; i++)
		*flag_of(facts, i) = r_below(r, 2);
	facts->step = r_i64(r);
	facts->world_size = r_i64(r);
	facts->finished = r_below(r, 2);
	facts->units = r_text_or_null(r);
	return r_result(r, err);
}

static int r_catalog(struct input *r, const struct uns_root *root, struct uns_err *err)
{
	size_t n;

	UNS_TRY(r_facts(r, err));
	n = r_count(r);
	UNS_TRY(r_result(r, err));
	for (; n; n--)
		UNS_TRY(r_file(r, root, err));
	UNS_TRY(r_list(r, r_tensor, err));
	UNS_TRY(r_list(r, r_group, err));
	UNS_TRY(r_list(r, r_named_value, err));
	UNS_TRY(r_list(r, r_companion, err));
	UNS_TRY(r_list(r, r_finding, err));
	r->bad |= uns_span_left(&r->in) != 0;
	return r_result(r, err);
}

static bool places_are_real(const struct uns_catalog *cat)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	for (; t < end; t++)
		if (t->group < -1 || t->group >= (int64_t)cat->n_groups || t->position < -1 ||
		    (t->group >= 0 && t->position >= (int64_t)cat->groups[t->group].n_params))
			return false;
	return true;
}

int uns_catalog_unpack(struct uns_span in, const struct uns_root *root, struct uns_catalog *cat,
		       struct uns_err *err)
{
	struct input r = { .in = in, .cat = cat };
	const uint8_t *head;
	int code;

	if (!uns_span_take(&r.in, sizeof(magic), &head) || memcmp(head, magic, sizeof(magic)) != 0 ||
	    r_u64(&r) != UNS_CATALOG_PACK_VERSION)
		return uns_fail(err, -EBADMSG, "these bytes are not a packed catalog");
	code = r_catalog(&r, root, err);
	free(r.texts);
	UNS_TRY(code);
	if (!places_are_real(cat))
		return uns_fail(err, -EBADMSG, "these bytes are not a packed catalog");
	return uns_catalog_seal(cat, err);
}
