/* Two windows of bytes, filled when first used. A read that lies in neither goes to the reader behind. */
#include "engine/edges.h"

#include "base/checked.h"

static int copy_from(struct uns_edges *e, const uint8_t *window, size_t *held, uint64_t window_off, size_t window_len,
		     void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	if (!*held) {
		UNS_TRY(uns_reader_pread(e->whole, (void *)window, window_len, window_off, err));
		*held = window_len;
	}
	memcpy(buf, window + (off - window_off), len);
	return 0;
}

static int edges_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	struct uns_edges *e = self;
	uint64_t size = e->whole->size;
	size_t edge = (size_t)uns_u64_min(size, UNS_EDGE_BYTES);

	if (uns_inside(off, len, edge))
		return copy_from(e, e->head, &e->head_len, 0, edge, buf, len, off, err);
	if (off >= size - edge)
		return copy_from(e, e->tail, &e->tail_len, size - edge, edge, buf, len, off, err);
	return uns_reader_pread(e->whole, buf, len, off, err);
}

int uns_edges_fill(struct uns_edges *e, struct uns_err *err)
{
	const uint64_t size = e->whole->size;
	const size_t edge = (size_t)uns_u64_min(size, UNS_EDGE_BYTES);
	uint8_t unused;

	if (size)
		UNS_TRY(copy_from(e, e->head, &e->head_len, 0, edge, &unused, 1, 0, err));
	if (size > edge)
		UNS_TRY(copy_from(e, e->tail, &e->tail_len, size - edge, edge, &unused, 1, size - 1, err));
	return 0;
}

struct uns_reader uns_reader_of_edges(struct uns_edges *edges, const struct uns_reader *whole)
{
	edges->whole = whole;
	edges->head_len = edges->tail_len = 0;
	return (struct uns_reader){ edges_pread, edges, whole->size };
}
