#include "device/portions.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"

static int portion_add(struct uns_portions *p, const struct uns_portion *portion, struct uns_err *err)
{
	size_t at = (p->filled_bytes + UNS_PORTION_ALIGN - 1) / UNS_PORTION_ALIGN * UNS_PORTION_ALIGN;

	UNS_TRY_ALLOC(UNS_HEAP_ROOM(p->v, p->n, p->cap) && UNS_HEAP_ROOM(p->begin, p->n_fills, p->cap_fills), err);
	if (!p->n_fills || !uns_inside(at, portion->box.size_bytes, p->buffer_bytes)) {
		p->begin[p->n_fills++] = p->n;
		at = 0;
	}
	p->v[p->n] = *portion;
	p->v[p->n++].at_bytes = at;
	p->filled_bytes = at + portion->box.size_bytes;
	return 0;
}

static int portions_add_cut(struct uns_portions *p, const struct tensor_box *box, char *to, struct uns_err *err)
{
	const size_t elem_bytes = unshard_dtype_size(box->dtype);
	const struct uns_box *whole = &box->box;
	struct uns_portion portion = { .box = *box, .to = to };
	struct uns_box *part = &portion.box.box;
	const uint64_t max_elems = p->buffer_bytes / elem_bytes;
	uint64_t row_elems = 1, rows, done, k, rest, n_outer = uns_box_elems(whole);
	uint32_t d = whole->n - 1, outer;

	/* The first dimension of which a buffer takes at least one row: those before it are gone through one by one. */
	for (; d > 0 && row_elems * whole->len[d] <= max_elems; d--)
		row_elems *= whole->len[d];
	n_outer /= whole->len[d] * row_elems;
	rows = max_elems / row_elems;
	for (k = 0; k < n_outer; k++) {
		for (outer = d, rest = k; outer-- > 0; rest /= whole->len[outer]) {
			part->lo[outer] = whole->lo[outer] + rest % whole->len[outer];
			part->len[outer] = 1;
		}
		for (done = 0; done < whole->len[d]; done += part->len[d]) {
			part->lo[d] = whole->lo[d] + done;
			part->len[d] = uns_u64_min(rows, whole->len[d] - done);
			portion.box.size_bytes = part->len[d] * row_elems * elem_bytes;
			UNS_TRY(portion_add(p, &portion, err));
			portion.to += portion.box.size_bytes;
		}
	}
	return 0;
}

int uns_portions_add(struct uns_portions *p, const struct tensor_box *box, void *to, struct uns_err *err)
{
	if (!box->size_bytes)
		return 0;
	if (box->size_bytes <= p->buffer_bytes)
		return portion_add(p, &(struct uns_portion){ .box = *box, .to = to }, err);
	return portions_add_cut(p, box, to, err);
}

void uns_portions_fini(struct uns_portions *p)
{
	free(p->v);
	free(p->begin);
}
