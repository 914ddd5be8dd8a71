/* Finding out all CRCs of a virtual file by reading: tensors are cut into chunks, the pool reads
 * them, and the chunks' CRCs combine to the tensors'. */
#include <stdlib.h>
#include <zlib.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/crc.h"
#include "engine/engine.h"

enum { READ_BYTES = 1 << 20 };
#define CHUNK_BYTES (UINT64_C(64) << 20)

struct chunk {
	const struct uns_segment *of; /* the CRC's segment: tensor and type */
	uint64_t at, len;
	uint32_t crc;
	bool done;
};

struct find {
	struct uns_backing *b;
	const struct uns_stop *stop;
	struct chunk *chunk;
	size_t n, cap;
};

static void find_fini(struct find *f)
{
	free(f->chunk);
}

static int stop_check(const struct find *f, struct uns_err *err)
{
	if (f->stop && f->stop->asked(f->stop->ctx))
		return uns_fail(err, -EINTR, "interrupted while data was read for CRCs");
	return 0;
}

static uint64_t size_of(const struct uns_segment *s)
{
	return uns_shape_elems(&s->tensor->shape) * uns_dtype_size(s->out);
}

static int add_tensor(struct find *f, const struct uns_segment *s, struct uns_err *err)
{
	uint64_t size = size_of(s), at;
	uint32_t crc;
	bool known;

	UNS_TRY(stop_check(f, err));
	UNS_TRY(uns_crc_look_up(f->b, s->tensor, s->out, &crc, &known, err));
	if (known)
		return 0;
	for (at = 0; at < size; at += CHUNK_BYTES) {
		UNS_TRY_ALLOC(UNS_HEAP_ROOM(f->chunk, f->n, f->cap), err);
		f->chunk[f->n++] = (struct chunk){ .of = s, .at = at, .len = uns_u64_min(CHUNK_BYTES, size - at) };
	}
	uns_count(&f->b->engine->count.crc_total_bytes, size);
	return 0;
}

static int read_chunk(void *ctx, size_t i, struct uns_err *err)
{
	const struct find *f = ctx;
	struct chunk *c = &f->chunk[i];
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(READ_BYTES);
	struct uns_segment segment = {
		.from = UNS_FROM_PIECES, .tensor = c->of->tensor, .out = c->of->out, .len_bytes = size_of(c->of)
	};
	const struct uns_layout whole = {
		.catalog = f->b->cat, .segment = &segment, .n = 1, .size_bytes = segment.len_bytes
	};
	uint64_t done = 0;
	ssize_t got;

	UNS_TRY_ALLOC(buf, err);
	for (; done < c->len; done += (uint64_t)got) {
		UNS_TRY(stop_check(f, err));
		got = uns_read(f->b, &whole, buf, (size_t)uns_u64_min(READ_BYTES, c->len - done), c->at + done, err);
		if (got < 0)
			return (int)got;
		c->crc = (uint32_t)crc32_z(c->crc, buf, (z_size_t)got);
		uns_count(&f->b->engine->count.crc_done_bytes, (uint64_t)got);
	}
	c->done = true;
	return 0;
}

/* Chunks of one tensor are together and in order. */
static int keep_all(const struct find *f, struct uns_err *err)
{
	const struct chunk *c, *end = f->chunk + f->n;
	const struct uns_segment *of;
	uint32_t crc;
	bool whole;

	for (c = f->chunk; c < end;) {
		of = c->of;
		whole = true;
		for (crc = 0; c < end && c->of == of; c++) {
			whole &= c->done;
			crc = c->at ? (uint32_t)crc32_combine64(crc, c->crc, (z_off64_t)c->len) : c->crc;
		}
		if (whole)
			UNS_TRY(uns_crc_keep(f->b, of->tensor, of->out, crc, err));
	}
	return 0;
}

int uns_backing_crcs_find(struct uns_backing *b, const struct uns_layout *layout, const struct uns_stop *stop,
			  struct uns_err *err)
{
	UNS_CLEANUP(find_fini) struct find f = { .b = b, .stop = stop };
	const struct uns_segment *s = layout->segment;
	int code, kept;
	size_t i;

	/* A zip file shows the CRC of a record twice: behind its data (with a literal between them), and in the
	 * directory at the end. The first of them is enough. */
	for (i = 2; i < layout->n; i++)
		if (s[i].from == UNS_FROM_CRC32 && s[i - 2].tensor == s[i].tensor)
			UNS_TRY(add_tensor(&f, &s[i], err));
	if (!f.n)
		return 0;
	code = uns_pool_each(b->engine->pool, f.n, read_chunk, &f, err);
	kept = keep_all(&f, err); /* also when it was interrupted */
	return code < 0 ? code : kept;
}
