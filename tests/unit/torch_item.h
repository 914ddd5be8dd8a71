/* Makes torch.save files of one tensor, as DCP stores its items: for tests that need items of chosen
 * types, shapes, strides and contents. */
#ifndef UNS_TESTS_TORCH_ITEM_H
#define UNS_TESTS_TORCH_ITEM_H

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"
#include "wire/dtype.h"

struct item_spec {
	enum uns_dtype dtype;
	size_t n;
	uint64_t dims[UNS_MAX_DIMS], strides[UNS_MAX_DIMS];
	const void *storage; /* all of it */
	size_t storage_bytes;
	unsigned first_elem;
};

static inline void item_le(struct uns_text *t, uint64_t v, unsigned n_bytes)
{
	uint8_t b[8];
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	uns_text_add(t, b, n_bytes);
}

static inline void item_int(struct uns_text *t, uint64_t v)
{
	uns_text_add(t, "J", 1); /* BININT */
	item_le(t, v, 4);
}

static inline void item_str(struct uns_text *t, const char *s)
{
	uns_text_add(t, "X", 1); /* BINUNICODE */
	item_le(t, strlen(s), 4);
	uns_text_str(t, s);
}

static inline void item_dims(struct uns_text *t, const uint64_t *v, size_t n)
{
	size_t i;

	uns_text_add(t, "(", 1);
	for (i = 0; i < n; i++)
		item_int(t, v[i]);
	uns_text_add(t, "t", 1);
}

/* _rebuild_tensor_v2(pid('storage', torch.XStorage, '0', 'cpu', numel), first, size, stride, False,
 * OrderedDict()) */
static inline void item_pickle(struct uns_text *t, const struct item_spec *s)
{
	uns_text_add(t, "\x80\x02", 2);
	uns_text_str(t, "ctorch._utils\n_rebuild_tensor_v2\n((");
	item_str(t, "storage");
	uns_text_printf(t, "ctorch\n%s\n", uns_dtype_info(s->dtype)->storage);
	item_str(t, "0");
	item_str(t, "cpu");
	item_int(t, s->storage_bytes / uns_dtype_size(s->dtype));
	uns_text_str(t, "tQ");
	item_int(t, s->first_elem);
	item_dims(t, s->dims, s->n);
	item_dims(t, s->strides, s->n);
	uns_text_str(t, "\x89"
			"ccollections\nOrderedDict\n)RtR.");
}

/* One stored record, data aligned to 64 bytes; its directory entry goes to `dir`. */
static inline void item_record(struct uns_text *t, struct uns_text *dir, const char *name, const void *bytes,
			       size_t len)
{
	size_t at = t->len, pad = (64 - (at + 34 + strlen(name)) % 64) % 64;
	uint32_t crc = (uint32_t)crc32_z(0, bytes, len);

	item_le(t, 0x04034b50, 4);
	item_le(t, 0, 6);
	item_le(t, 0, 4);
	item_le(t, crc, 4);
	item_le(t, len, 4);
	item_le(t, len, 4);
	item_le(t, strlen(name), 2);
	item_le(t, 4 + pad, 2);
	uns_text_str(t, name);
	uns_text_str(t, "FB");
	item_le(t, pad, 2);
	while (pad--)
		uns_text_str(t, "Z");
	uns_text_add(t, bytes, len);
	item_le(dir, 0x02014b50, 4);
	item_le(dir, 0, 8);
	item_le(dir, 0, 4);
	item_le(dir, crc, 4);
	item_le(dir, len, 4);
	item_le(dir, len, 4);
	item_le(dir, strlen(name), 2);
	item_le(dir, 0, 8);
	item_le(dir, 0, 4);
	item_le(dir, at, 4);
	uns_text_str(dir, name);
}

/* The directory of n records and the end. */
static inline void item_end(struct uns_text *t, const struct uns_text *dir, unsigned n)
{
	size_t dir_at = t->len;

	uns_text_add(t, dir->p, dir->len);
	item_le(t, 0x06054b50, 4);
	item_le(t, 0, 4);
	item_le(t, n, 2);
	item_le(t, n, 2);
	item_le(t, dir->len, 4);
	item_le(t, dir_at, 4);
	item_le(t, 0, 2);
	assert(!t->failed && !dir->failed);
}

/* Append the file to `out`, which must be empty or hold whole files (each its own archive). */
static inline void item_add(struct uns_text *out, const struct item_spec *s)
{
	struct uns_text t = UNS_TEXT_INIT, dir = UNS_TEXT_INIT, pickle = UNS_TEXT_INIT;

	item_pickle(&pickle, s);
	item_record(&t, &dir, "archive/data.pkl", pickle.p, pickle.len);
	item_record(&t, &dir, "archive/byteorder", "little", 6);
	item_record(&t, &dir, "archive/data/0", s->storage, s->storage_bytes);
	item_record(&t, &dir, "archive/version", "3\n", 2);
	item_end(&t, &dir, 4);
	assert(!pickle.failed);
	uns_text_add(out, t.p, t.len);
	uns_text_fini(&t);
	uns_text_fini(&dir);
	uns_text_fini(&pickle);
}

#endif
