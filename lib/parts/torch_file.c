/* The zip that torch.save writes, as segments. Knows zip and torch's record names, not what the
 * values mean. Field widths: PKWARE APPNOTE 4.3; which of them torch fills: observed on its files. */
#include "parts/torch_file.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "wire/pickle_emit.h"

enum {
	ALIGN_BYTES = 64,
	LOCAL_BYTES = 30,
	FLAGS = 0x0808, /* sizes follow in a descriptor; names are UTF-8 */
	ZIP64_BYTES = 20,
};
#define LIMIT32 UINT64_C(0xffffffff)

struct writer {
	struct uns_layout_builder b;
	struct uns_arena *arena;
	const char *stem;
	struct record {
		const char *name; /* with stem */
		uint64_t at_bytes, size_bytes;
		const struct uns_torch_leaf *leaf; /* whose CRC the engine fills in; NULL = crc */
		uint32_t crc;
	} *record;
	size_t n, cap;
	bool failed;
};

/* A little-endian number of at most 8 bytes. Texts being put together move into the arena as one
 * literal by flush(). */
static void put(struct uns_text *t, uint64_t v, unsigned n_bytes)
{
	unsigned char b[8];
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		b[i] = (unsigned char)(v >> (8 * i));
	uns_text_add(t, b, n_bytes);
}

static void flush(struct writer *w, struct uns_text *t)
{
	const char *copy = t->failed ? NULL : uns_arena_strn(w->arena, t->p ? t->p : "", t->len);

	if (copy)
		uns_layout_literal(&w->b, copy, t->len);
	else
		w->failed = true;
	uns_text_fini(t);
}

static bool is_large(const struct record *r)
{
	return r->size_bytes >= LIMIT32 || r->at_bytes >= LIMIT32;
}

/* -- local header, descriptor -- */

static void local_header(struct writer *w, const struct record *r)
{
	size_t name = strlen(r->name), zip64 = r->size_bytes >= LIMIT32 ? ZIP64_BYTES : 0, pad;
	struct uns_text t = UNS_TEXT_INIT;

	pad = (size_t)(r->at_bytes + LOCAL_BYTES + name + zip64 + 4) % ALIGN_BYTES;
	pad = pad ? ALIGN_BYTES - pad : 0;
	uns_text_add(&t, "PK\3\4", 4);
	put(&t, 0, 2); /* version needed: torch writes 0 */
	put(&t, r->size_bytes ? FLAGS : FLAGS & ~8, 2);
	put(&t, 0, 2 + 4); /* stored; no time */
	put(&t, 0, 4);     /* crc and sizes come behind the data */
	put(&t, 0, 8);
	put(&t, name, 2);
	put(&t, zip64 + 4 + pad, 2);
	uns_text_add(&t, r->name, name);
	if (zip64) {
		put(&t, 1, 2);
		put(&t, 16, 2);
		put(&t, r->size_bytes, 8);
		put(&t, r->size_bytes, 8);
	}
	uns_text_add(&t, "FB", 2);
	put(&t, pad, 2);
	for (; pad; pad--)
		uns_text_add(&t, "Z", 1);
	flush(w, &t);
}

static void crc_field(struct writer *w, struct uns_text *t, const struct record *r)
{
	if (!r->leaf) {
		put(t, r->crc, 4);
		return;
	}
	flush(w, t);
	uns_layout_crc32(&w->b, r->leaf->tensor, r->leaf->out);
}

static void descriptor(struct writer *w, const struct record *r)
{
	struct uns_text t = UNS_TEXT_INIT;
	unsigned width = is_large(r) ? 8 : 4;

	uns_text_add(&t, "PK\7\10", 4);
	crc_field(w, &t, r);
	put(&t, r->size_bytes, width);
	put(&t, r->size_bytes, width);
	flush(w, &t);
}

/* -- records -- */

static struct record *record_open(struct writer *w, const char *name, uint64_t size_bytes)
{
	struct record *r, *grown;

	if (w->n == w->cap) {
		w->cap = w->cap ? w->cap * 2 : 64;
		grown = uns_arena_grow(w->arena, w->record, w->n, w->cap, sizeof(*grown));
		if (!grown) {
			w->failed = true;
			return NULL;
		}
		w->record = grown;
	}
	r = &w->record[w->n++];
	*r = (struct record){ .at_bytes = w->b.at_bytes, .size_bytes = size_bytes };
	r->name = uns_arena_printf(w->arena, "%s/%s", w->stem, name);
	if (!r->name) {
		w->failed = true;
		return NULL;
	}
	return r;
}

/* crc32() takes 32-bit lengths. */
static uint32_t crc_of(const uint8_t *bytes, uint64_t len)
{
	return (uint32_t)crc32_z(0, bytes, (z_size_t)len);
}

static void add_literal(struct writer *w, const char *name, const void *bytes, uint64_t len)
{
	struct record *r = w->failed ? NULL : record_open(w, name, len);

	if (!r)
		return;
	r->crc = crc_of(bytes, len);
	local_header(w, r);
	uns_layout_literal(&w->b, bytes, (size_t)len);
	if (len)
		descriptor(w, r);
}

static void add_leaf(struct writer *w, size_t index, const struct uns_torch_leaf *leaf)
{
	uint64_t elems = uns_shape_elems(&leaf->shape);
	uint64_t len = elems * uns_dtype_size(leaf->out);
	struct record *r;
	char name[32];

	snprintf(name, sizeof(name), "data/%zu", index);
	if (!leaf->tensor) {
		add_literal(w, name, leaf->literal, len);
		return;
	}
	r = w->failed ? NULL : record_open(w, name, len);
	if (!r)
		return;
	r->leaf = len ? leaf : NULL;
	local_header(w, r);
	uns_layout_tensor(&w->b, leaf->tensor, 0, elems, leaf->out);
	if (len)
		descriptor(w, r);
}

/* -- the end -- */

static void directory_entry(struct writer *w, const struct record *r)
{
	bool size64 = r->size_bytes >= LIMIT32, at64 = r->at_bytes >= LIMIT32;
	unsigned extra = (size64 ? 16u : 0) + (at64 ? 8u : 0);
	struct uns_text t = UNS_TEXT_INIT;
	size_t name = strlen(r->name);

	uns_text_add(&t, "PK\1\2", 4);
	put(&t, 0, 4); /* made by, needed */
	put(&t, r->size_bytes ? FLAGS : FLAGS & ~8, 2);
	put(&t, 0, 2 + 4);
	crc_field(w, &t, r);
	put(&t, size64 ? LIMIT32 : r->size_bytes, 4);
	put(&t, size64 ? LIMIT32 : r->size_bytes, 4);
	put(&t, name, 2);
	put(&t, extra ? extra + 4 : 0, 2);
	put(&t, 0, 2 + 2 + 2); /* comment, disk, internal attributes */
	put(&t, 0, 4);         /* external attributes */
	put(&t, at64 ? LIMIT32 : r->at_bytes, 4);
	uns_text_add(&t, r->name, name);
	if (extra) {
		put(&t, 1, 2);
		put(&t, extra, 2);
	}
	if (size64) {
		put(&t, r->size_bytes, 8);
		put(&t, r->size_bytes, 8);
	}
	if (at64)
		put(&t, r->at_bytes, 8);
	flush(w, &t);
}

static void end_records(struct writer *w, uint64_t directory_bytes, uint64_t directory_size)
{
	struct uns_text t = UNS_TEXT_INIT;
	uint64_t end64 = w->b.at_bytes, n16 = w->n < 0xffff ? w->n : 0xffff;

	uns_text_add(&t, "PK\6\6", 4);
	put(&t, 44, 8); /* what follows of this record */
	put(&t, 0x2d, 2);
	put(&t, 0x2d, 2);
	put(&t, 0, 8); /* disks */
	put(&t, w->n, 8);
	put(&t, w->n, 8);
	put(&t, directory_size, 8);
	put(&t, directory_bytes, 8);
	uns_text_add(&t, "PK\6\7", 4);
	put(&t, 0, 4);
	put(&t, end64, 8);
	put(&t, 1, 4);
	uns_text_add(&t, "PK\5\6", 4);
	put(&t, 0, 4);
	put(&t, n16, 2);
	put(&t, n16, 2);
	put(&t, directory_size < LIMIT32 ? directory_size : LIMIT32, 4);
	put(&t, directory_bytes < LIMIT32 ? directory_bytes : LIMIT32, 4);
	put(&t, 0, 2);
	flush(w, &t);
}

static void finish(struct writer *w)
{
	uint64_t start = w->b.at_bytes;
	size_t i;

	for (i = 0; i < w->n && !w->failed; i++)
		directory_entry(w, &w->record[i]);
	end_records(w, start, w->b.at_bytes - start);
}

/* 40 digits, as torch's: here a digest of the pickle, so that equal content gives equal bytes. */
static const char *serialization_id(struct uns_arena *arena, const uint8_t *pickle, size_t len)
{
	uint32_t a = crc_of(pickle, len), b = (uint32_t)adler32_z(1, pickle, len);

	return uns_arena_printf(arena, "%020u%020u", a, b);
}

static int emit_pickle(struct uns_span front, const struct uns_value *root,
		       const struct uns_torch_leaf *leaves, size_t n, struct uns_arena *arena,
		       const char **bytes, size_t *len, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_pickle_tensor *t = UNS_NEW_N(arena, struct uns_pickle_tensor, n);
	size_t i;

	if (!t)
		return uns_fail(err, -ENOMEM, "out of memory");
	for (i = 0; i < n; i++)
		t[i] = (struct uns_pickle_tensor){ leaves[i].out, leaves[i].shape.n,
						   leaves[i].shape.dim };
	if (uns_span_left(&front))
		UNS_TRY(uns_pickle_emit_behind(front, root, t, n, &text, err));
	else
		UNS_TRY(uns_pickle_emit(root, t, n, &text, err));
	*len = text.len;
	*bytes = uns_arena_strn(arena, text.p, text.len);
	return *bytes ? 0 : uns_fail(err, -ENOMEM, "out of memory");
}

int uns_part_torch_file_behind(const struct uns_catalog *cat, struct uns_span front,
			       const struct uns_value *root, const struct uns_torch_leaf *leaves,
			       size_t n_leaves, const char *stem, struct uns_arena *arena,
			       struct uns_layout *out, struct uns_err *err)
{
	struct writer w = { .b = { .arena = arena }, .arena = arena, .stem = stem };
	const char *pickle, *id;
	size_t len, i;

	UNS_TRY(emit_pickle(front, root, leaves, n_leaves, arena, &pickle, &len, err));
	id = serialization_id(arena, (const uint8_t *)pickle, len);
	if (!id)
		return uns_fail(err, -ENOMEM, "out of memory");
	add_literal(&w, "data.pkl", pickle, len);
	add_literal(&w, ".format_version", "1", 1);
	add_literal(&w, ".storage_alignment", "64", 2);
	add_literal(&w, "byteorder", "little", 6);
	for (i = 0; i < n_leaves; i++)
		add_leaf(&w, i, &leaves[i]);
	add_literal(&w, "version", "3\n", 2);
	add_literal(&w, ".data/serialization_id", id, 40);
	finish(&w);
	if (w.failed)
		return uns_fail(err, -ENOMEM, "out of memory");
	return uns_layout_build(&w.b, cat, out, err);
}

int uns_part_torch_file(const struct uns_catalog *cat, const struct uns_value *root,
			const struct uns_torch_leaf *leaves, size_t n_leaves, const char *stem,
			struct uns_arena *arena, struct uns_layout *out, struct uns_err *err)
{
	return uns_part_torch_file_behind(cat, uns_span_of("", 0), root, leaves, n_leaves, stem,
					  arena, out, err);
}
