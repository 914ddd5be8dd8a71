/* All CRCs of a file at once: large tensors in parts, on the pool, until somebody says stop. */
#include <stdlib.h>
#include <zlib.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/crc.h"

enum { READ_BYTES = 1 << 20 };
#define PART_BYTES (UINT64_C(64) << 20)

struct part {
	const struct uns_segment *of; /* the CRC's segment: tensor and type */
	uint64_t at, len;
	uint32_t crc;
	bool done;
};

struct find {
	struct uns_backing *b;
	const struct uns_stop *stop;
	struct part *part;
	size_t n, cap;
};

static void find_fini(struct find *f)
{
	free(f->part);
}

static int check_stop(const struct find *f, struct uns_err *err)
{
	if (f->stop && f->stop->asked(f->stop->ctx))
		return uns_fail(err, -EINTR, "interrupted while finding out CRCs");
	return 0;
}

static int add_part(struct find *f, const struct uns_segment *of, uint64_t at, uint64_t len,
		    struct uns_err *err)
{
	if (!UNS_HEAP_ROOM(f->part, f->n, f->cap))
		return uns_oom(err);
	f->part[f->n++] = (struct part){ .of = of, .at = at, .len = len };
	return 0;
}

/* The data's CRC is shown twice, behind it and in the directory: the first one stands for both. */
static int add_tensor(struct find *f, const struct uns_segment *s, struct uns_err *err)
{
	uint64_t size = uns_shape_elems(&s->tensor->shape) * uns_dtype_size(s->out), at;
	uint32_t crc;
	bool known;

	UNS_TRY(check_stop(f, err));
	UNS_TRY(uns_crc_find(f->b, s->tensor, s->out, &crc, &known, err));
	for (at = 0; at < size && !known; at += PART_BYTES)
		UNS_TRY(add_part(f, s, at, uns_u64_min(PART_BYTES, size - at), err));
	if (!known)
		uns_count(&f->b->engine->count.crc_total_bytes, size);
	return 0;
}

static int add_tensors(struct find *f, const struct uns_layout *layout, struct uns_err *err)
{
	size_t i;

	for (i = 2; i < layout->n; i++)
		if (layout->segment[i].from == UNS_FROM_CRC32 &&
		    layout->segment[i - 2].tensor == layout->segment[i].tensor)
			UNS_TRY(add_tensor(f, &layout->segment[i], err));
	return 0;
}

static int read_part(void *ctx, size_t i, struct uns_err *err)
{
	const struct find *f = ctx;
	struct part *p = &f->part[i];
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(READ_BYTES);
	struct uns_segment segment;
	struct uns_layout whole = uns_crc_layout(f->b, p->of->tensor, p->of->out, &segment);
	uint64_t done = 0;
	ssize_t got;

	if (!buf)
		return uns_oom(err);
	for (; done < p->len; done += (uint64_t)got) {
		UNS_TRY(check_stop(f, err));
		got = uns_read(f->b, &whole, buf, (size_t)uns_u64_min(READ_BYTES, p->len - done),
			       p->at + done, err);
		if (got < 0)
			return (int)got;
		p->crc = (uint32_t)crc32_z(p->crc, buf, (z_size_t)got);
		uns_count(&f->b->engine->count.crc_done_bytes, (uint64_t)got);
	}
	p->done = true;
	return 0;
}

/* Parts of one tensor lie together and in order. */
static void learn(const struct find *f)
{
	const struct part *p, *end = f->part + f->n;
	const struct uns_segment *of;
	uint32_t crc;
	bool whole;

	for (p = f->part; p < end;) {
		of = p->of;
		whole = true;
		for (crc = 0; p < end && p->of == of; p++) {
			whole &= p->done;
			crc = p->at ? (uint32_t)crc32_combine64(crc, p->crc, (z_off64_t)p->len) :
				      p->crc;
		}
		if (whole)
			uns_crc_learn(f->b, of->tensor, of->out, crc);
	}
}

int uns_backing_crcs_find(struct uns_backing *b, const struct uns_layout *layout,
			  const struct uns_stop *stop, struct uns_err *err)
{
	UNS_CLEANUP(find_fini) struct find f = { .b = b, .stop = stop };
	int code;

	UNS_TRY(add_tensors(&f, layout, err));
	code = f.n ? uns_pool_each(b->engine->pool, f.n, read_part, &f, err) : 0;
	if (f.n)
		learn(&f);
	return code;
}
