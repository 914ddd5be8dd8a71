/* The zip that torch.save writes, as segments. Knows zip and torch's record names, not what the values mean. Field
 * widths: PKWARE APPNOTE 4.3; which of them torch fills: observed on its files. */
#include "files/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "wire/value_new.h"

enum {
	ALIGN_BYTES = 64,
	LOCAL_BYTES = 30,
	FLAGS = 0x0808, /* sizes follow in a descriptor; names are UTF-8 */
	ZIP64_BYTES = 20,
	SMALL_BYTES = 4096, /* shorter literals are copied, so that neighbours become one segment */
};
#define LIMIT32 UINT64_C(0xffffffff)

struct writer {
	struct uns_layout_builder b;
	struct uns_arena *arena;
	const char *stem;
	struct uns_text text; /* bytes before the builder's next segment */
	struct record {
		const char *name; /* with stem */
		uint64_t at_bytes, size_bytes;
		const struct uns_torch_leaf *leaf; /* the tensor whose CRC the engine fills in; NULL = `crc` is known */
		uint32_t crc;
	} *record;
	size_t n, cap;
	bool failed, uneven; /* "uneven": the parts of a leaf have another number of elements than its shape */
};

static void writer_fini(struct writer *w)
{
	uns_text_fini(&w->text);
}

/* A little-endian number of at most 8 bytes. */
static void put_number(struct writer *w, uint64_t v, unsigned n_bytes)
{
	unsigned char b[8];
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		b[i] = (unsigned char)(v >> (8 * i));
	uns_text_add(&w->text, b, n_bytes);
}

struct field {
	uint64_t value;
	unsigned n_bytes;
};

/* Writes a signature of four bytes ("" = none) and the numbers behind it. */
static void put_fields(struct writer *w, const char *signature, const struct field *f, size_t n)
{
	uns_text_str(&w->text, signature);
	for (; n; n--, f++)
		put_number(w, f->value, f->n_bytes);
}
#define PUT_FIELDS(w, signature, ...)                                       \
	put_fields((w), (signature), (const struct field[]){ __VA_ARGS__ }, \
		   sizeof((const struct field[]){ __VA_ARGS__ }) / sizeof(struct field))

/* The offset of the next byte. */
static uint64_t offset_at(const struct writer *w)
{
	return w->b.at_bytes + w->text.len;
}

/* Makes one literal of the collected bytes. */
static void text_flush(struct writer *w)
{
	const char *copy;

	if (!w->text.len && !w->text.failed)
		return;
	copy = w->text.failed ? NULL : uns_arena_strn(w->arena, w->text.p, w->text.len);
	if (copy)
		uns_layout_literal(&w->b, copy, w->text.len);
	else
		w->failed = true;
	uns_text_fini(&w->text);
	w->text = UNS_TEXT_INIT;
}

/* -- local header, descriptor -- */

static void put_local_header(struct writer *w, const struct record *r)
{
	size_t name = strlen(r->name), zip64 = r->size_bytes >= LIMIT32 ? ZIP64_BYTES : 0, pad;

	pad = (size_t)(r->at_bytes + LOCAL_BYTES + name + zip64 + 4) % ALIGN_BYTES;
	pad = pad ? ALIGN_BYTES - pad : 0;
	/* version needed (torch writes 0); flags; stored, no time; crc and sizes, which come behind the data */
	PUT_FIELDS(w, "PK\3\4", { 0, 2 }, { r->size_bytes ? FLAGS : FLAGS & ~8, 2 }, { 0, 2 + 4 }, { 0, 4 }, { 0, 8 },
		   { name, 2 }, { zip64 + 4 + pad, 2 });
	uns_text_add(&w->text, r->name, name);
	if (zip64)
		PUT_FIELDS(w, "", { 1, 2 }, { 16, 2 }, { r->size_bytes, 8 }, { r->size_bytes, 8 });
	PUT_FIELDS(w, "FB", { pad, 2 });
	for (; pad; pad--)
		uns_text_add(&w->text, "Z", 1);
}

static void put_crc(struct writer *w, const struct record *r)
{
	if (!r->leaf) {
		put_number(w, r->crc, 4);
		return;
	}
	text_flush(w);
	uns_layout_crc32(&w->b, r->leaf->tensor, r->leaf->out);
}

/* Behind the data; a record without data has none. */
static void put_descriptor(struct writer *w, const struct record *r)
{
	const unsigned width = r->size_bytes >= LIMIT32 || r->at_bytes >= LIMIT32 ? 8 : 4;

	if (!r->size_bytes)
		return;
	uns_text_add(&w->text, "PK\7\10", 4);
	put_crc(w, r);
	PUT_FIELDS(w, "", { r->size_bytes, width }, { r->size_bytes, width });
}

/* -- records -- */

/* Begins a record: adds it to the list and writes its header. NULL = the writer has failed. */
static struct record *record_begin(struct writer *w, const char *name, uint64_t size_bytes)
{
	struct record *r;

	if (w->failed || !UNS_ARENA_ROOM(w->arena, w->record, w->n, w->cap)) {
		w->failed = true;
		return NULL;
	}
	r = &w->record[w->n++];
	*r = (struct record){ .at_bytes = offset_at(w), .size_bytes = size_bytes };
	r->name = uns_arena_printf(w->arena, "%s/%s", w->stem, name);
	w->failed = !r->name;
	if (w->failed)
		return NULL;
	put_local_header(w, r);
	return r;
}

/* crc32() takes 32-bit lengths. */
static uint32_t crc_of(const uint8_t *bytes, uint64_t len)
{
	return (uint32_t)crc32_z(0, bytes, (z_size_t)len);
}

static void literal_add(struct writer *w, const char *name, const void *bytes, uint64_t len)
{
	struct record *r = record_begin(w, name, len);

	if (!r)
		return;
	r->crc = crc_of(bytes, len);
	if (len <= SMALL_BYTES) {
		uns_text_add(&w->text, bytes, (size_t)len);
	} else {
		text_flush(w);
		uns_layout_literal(&w->b, bytes, (size_t)len);
	}
	put_descriptor(w, r);
}

static void leaf_add(struct writer *w, const struct uns_torch_leaf *leaf, size_t index)
{
	const struct uns_torch_part *p = leaf->part, *end = p + leaf->n_parts;
	uint64_t elems = uns_shape_elems(&leaf->shape), left = elems;
	uint64_t len = elems * uns_dtype_size(leaf->out);
	struct record *r;
	char name[32];

	snprintf(name, sizeof(name), "data/%zu", index);
	if (!leaf->tensor && !leaf->part) {
		literal_add(w, name, leaf->literal, len);
		return;
	}
	r = record_begin(w, name, len);
	if (!r)
		return;
	r->leaf = len && leaf->tensor ? leaf : NULL;
	text_flush(w);
	if (leaf->tensor)
		uns_layout_tensor(&w->b, leaf->tensor, 0, elems, leaf->out);
	for (; !leaf->tensor && p < end; p++) {
		left -= p->n_elems;
		if (p->tensor)
			uns_layout_tensor(&w->b, p->tensor, p->first_elem, p->n_elems, leaf->out);
		else
			uns_layout_zeros(&w->b, p->n_elems * uns_dtype_size(leaf->out));
	}
	w->uneven |= !leaf->tensor && left;
	put_descriptor(w, r);
}

/* -- the end -- */

static void put_directory_entry(struct writer *w, const struct record *r)
{
	const bool size64 = r->size_bytes >= LIMIT32, at64 = r->at_bytes >= LIMIT32;
	const unsigned extra = (size64 ? 16u : 0) + (at64 ? 8u : 0);
	const uint64_t size32 = size64 ? LIMIT32 : r->size_bytes;
	const size_t name = strlen(r->name);

	/* made by, needed; flags; stored, no time */
	PUT_FIELDS(w, "PK\1\2", { 0, 4 }, { r->size_bytes ? FLAGS : FLAGS & ~8, 2 }, { 0, 2 + 4 });
	put_crc(w, r);
	/* behind the extra fields' length: comment, disk, internal and external attributes */
	PUT_FIELDS(w, "", { size32, 4 }, { size32, 4 }, { name, 2 }, { extra ? extra + 4 : 0, 2 }, { 0, 2 + 2 + 2 },
		   { 0, 4 }, { at64 ? LIMIT32 : r->at_bytes, 4 });
	uns_text_add(&w->text, r->name, name);
	if (extra)
		PUT_FIELDS(w, "", { 1, 2 }, { extra, 2 });
	if (size64)
		PUT_FIELDS(w, "", { r->size_bytes, 8 }, { r->size_bytes, 8 });
	if (at64)
		put_number(w, r->at_bytes, 8);
}

/* Writes the central directory, zip64's end of it and where that is, and the end that every zip has. */
static void put_directory(struct writer *w)
{
	const uint64_t start = offset_at(w), n16 = w->n < 0xffff ? w->n : 0xffff;
	uint64_t size, end64;
	size_t i;

	for (i = 0; i < w->n && !w->failed; i++)
		put_directory_entry(w, &w->record[i]);
	end64 = offset_at(w);
	size = end64 - start;
	/* length of the rest of this record; versions; disks */
	PUT_FIELDS(w, "PK\6\6", { 44, 8 }, { 0x2d, 2 }, { 0x2d, 2 }, { 0, 8 }, { w->n, 8 }, { w->n, 8 }, { size, 8 },
		   { start, 8 });
	PUT_FIELDS(w, "PK\6\7", { 0, 4 }, { end64, 8 }, { 1, 4 });
	PUT_FIELDS(w, "PK\5\6", { 0, 4 }, { n16, 2 }, { n16, 2 }, { size < LIMIT32 ? size : LIMIT32, 4 },
		   { start < LIMIT32 ? start : LIMIT32, 4 }, { 0, 2 });
	text_flush(w);
}

/* 40 digits, as torch writes: a digest of the pickle, so that equal content gives equal bytes. */
static const char *serialization_id(struct uns_arena *arena, const uint8_t *pickle, size_t len)
{
	uint32_t a = crc_of(pickle, len), b = (uint32_t)adler32_z(1, pickle, len);

	return uns_arena_printf(arena, "%020u%020u", a, b);
}

static int emit_pickle(const struct uns_torch_input *in, struct uns_arena *arena, const char **bytes, size_t *len,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	size_t i, n = in->leaves ? in->leaves->n : 0;
	struct uns_pickle_tensor *t = UNS_NEW_N(arena, struct uns_pickle_tensor, n);

	*bytes = (const char *)in->pickle.p;
	*len = uns_span_left(&in->pickle);
	if (*len)
		return 0;
	UNS_TRY_ALLOC(t, err);
	for (i = 0; i < n; i++)
		t[i] = (struct uns_pickle_tensor){ in->leaves->v[i].out, in->leaves->v[i].shape.n,
						   in->leaves->v[i].shape.dim };
	if (uns_span_left(&in->front))
		UNS_TRY(uns_pickle_emit_behind(in->front, in->root, t, n, &text, err));
	else
		UNS_TRY(uns_pickle_emit(in->root, t, n, in->classes, &text, err));
	*len = text.len;
	*bytes = uns_arena_strn(arena, text.p, text.len);
	return *bytes ? 0 : uns_oom(err);
}

int uns_part_torch_file(const struct uns_torch_input *in, struct uns_arena *arena, struct uns_layout *out,
			struct uns_err *err)
{
	UNS_CLEANUP(writer_fini)
	struct writer w = { .b = { .arena = arena }, .arena = arena, .stem = in->stem };
	const char *pickle, *id;
	size_t len, i;

	UNS_TRY(emit_pickle(in, arena, &pickle, &len, err));
	UNS_TRY_ALLOC(id = serialization_id(arena, (const uint8_t *)pickle, len), err);
	literal_add(&w, "data.pkl", pickle, len);
	literal_add(&w, ".format_version", "1", 1);
	literal_add(&w, ".storage_alignment", "64", 2);
	literal_add(&w, "byteorder", "little", 6);
	for (i = 0; in->leaves && i < in->leaves->n; i++)
		leaf_add(&w, &in->leaves->v[i], i);
	literal_add(&w, "version", "3\n", 2);
	literal_add(&w, ".data/serialization_id", id, 40);
	put_directory(&w);
	if (w.failed)
		return uns_oom(err);
	if (w.uneven)
		return uns_fail(err, -EINVAL, "a storage's parts do not add up to its shape");
	return uns_layout_build(&w.b, in->cat, out, err);
}

int uns_torch_file_add(const struct uns_torch_input *in, const char *path, const char *origin, struct uns_vtree *out,
		       struct uns_err *err)
{
	struct uns_vfile file = { .path = path, .source = UNS_NONE, .origin = origin };

	UNS_TRY_ALLOC(path && origin, err);
	UNS_TRY(uns_part_torch_file(in, &out->arena, &file.layout, err));
	return uns_vtree_add(out, &file, err);
}

/* -- storages -- */

void uns_torch_leaves_fini(struct uns_torch_leaves *leaves)
{
	free(leaves->v);
	*leaves = (struct uns_torch_leaves){ 0 };
}

const struct uns_value *uns_torch_leaf_add(struct uns_torch_leaves *leaves, struct uns_arena *arena,
					   const struct uns_torch_leaf *leaf)
{
	if (!UNS_HEAP_ROOM(leaves->v, leaves->n, leaves->cap)) {
		arena->failed = true;
		return NULL;
	}
	leaves->v[leaves->n] = *leaf;
	return uns_value_new_tensor(arena, leaves->n++);
}

const struct uns_value *uns_torch_tensor_add(struct uns_torch_leaves *leaves, struct uns_arena *arena,
					     const struct uns_tensor *t)
{
	const struct uns_torch_leaf leaf = { .tensor = t, .out = t->dtype, .shape = t->shape };

	return uns_torch_leaf_add(leaves, arena, &leaf);
}

const struct uns_value *uns_torch_step_add(struct uns_torch_leaves *leaves, struct uns_arena *arena, double step)
{
	float *value = UNS_NEW(arena, float);
	const struct uns_torch_leaf leaf = { .out = UNS_F32, .literal = (const uint8_t *)value };

	if (!value)
		return NULL;
	*value = (float)step;
	return uns_torch_leaf_add(leaves, arena, &leaf);
}
