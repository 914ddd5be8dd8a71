#include "device/portions.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"

static int add(struct uns_portions *p, const struct uns_portion *portion, struct uns_err *err)
{
	size_t at =
		(p->filled_bytes + UNS_PORTION_ALIGN - 1) / UNS_PORTION_ALIGN * UNS_PORTION_ALIGN;

	if (!UNS_HEAP_ROOM(p->v, p->n, p->cap) ||
	    !UNS_HEAP_ROOM(p->begin, p->n_fills, p->cap_fills))
		return uns_oom(err);
	if (!p->n_fills || !uns_inside(at, portion->box.size_bytes, p->buffer_bytes)) {
		p->begin[p->n_fills++] = p->n;
		at = 0;
	}
	p->v[p->n] = *portion;
	p->v[p->n++].at_bytes = at;
	p->filled_bytes = at + portion->box.size_bytes;
	return 0;
}

/* The first dimension of which a buffer takes at least one row: those before it are gone through one by one. */
static uint32_t cut_dimension(const struct uns_box *box, uint64_t max_elems, uint64_t *row_elems)
{
	uint32_t d = box->n - 1;

	for (*row_elems = 1; d > 0 && *row_elems * box->len[d] <= max_elems; d--)
		*row_elems *= box->len[d];
	return d;
}

/* The k-th combination of the dimensions before d. */
static void choose_outer(const struct uns_box *whole, uint32_t d, uint64_t k, struct uns_box *out)
{
	while (d-- > 0) {
		out->lo[d] = whole->lo[d] + k % whole->len[d];
		out->len[d] = 1;
		k /= whole->len[d];
	}
}

static int add_cut(struct uns_portions *p, const struct tensor_box *box, char *to,
		   struct uns_err *err)
{
	const size_t elem_bytes = unshard_dtype_size(box->dtype);
	const struct uns_box *whole = &box->box;
	struct uns_portion portion = { .box = *box, .to = to };
	struct uns_box *part = &portion.box.box;
	uint64_t row_elems, rows, done, k, n_outer = uns_box_elems(whole);
	const uint32_t d = cut_dimension(whole, p->buffer_bytes / elem_bytes, &row_elems);

	n_outer /= whole->len[d] * row_elems;
	rows = p->buffer_bytes / elem_bytes / row_elems;
	for (k = 0; k < n_outer; k++) {
		choose_outer(whole, d, k, part);
		for (done = 0; done < whole->len[d]; done += part->len[d]) {
			part->lo[d] = whole->lo[d] + done;
			part->len[d] = uns_u64_min(rows, whole->len[d] - done);
			portion.box.size_bytes = part->len[d] * row_elems * elem_bytes;
			UNS_TRY(add(p, &portion, err));
			portion.to += portion.box.size_bytes;
		}
	}
	return 0;
}

int uns_portions_add(struct uns_portions *p, const struct tensor_box *box, void *to,
		     struct uns_err *err)
{
	if (!box->size_bytes)
		return 0;
	if (box->size_bytes <= p->buffer_bytes)
		return add(p, &(struct uns_portion){ .box = *box, .to = to }, err);
	return add_cut(p, box, to, err);
}

void uns_portions_fini(struct uns_portions *p)
{
	free(p->v);
	free(p->begin);
}
