/* The union of rank-local DCP metadata. Each part is already sound in itself; what can still be wrong
 * is that ranks contradict each other. */
#include "dcp/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"

struct merge {
	struct uns_arena *arena;
	struct uns_err *err;
};

static int contradict(struct merge *m, struct uns_dcp_entry *e, const char *about)
{
	e->kind = UNS_DCP_UNKNOWN;
	e->code = -EBADMSG;
	e->why = uns_arena_printf(m->arena, "'%s': ranks disagree about its %s", e->key, about);
	return e->why ? 0 : uns_oom(m->err);
}

/* Until the chunks are gathered, e->n_chunks is only their number. */
static int entry_join(struct merge *m, struct uns_dcp_entry *e, const struct uns_dcp_entry *more)
{
	if (more->is_elsewhere)
		return 0;
	if (e->is_elsewhere) {
		*e = *more;
		e->chunk = NULL;
		return 0;
	}
	if (e->kind == UNS_DCP_UNKNOWN)
		return 0;
	if (more->kind == UNS_DCP_UNKNOWN) {
		e->kind = UNS_DCP_UNKNOWN;
		e->code = more->code;
		e->why = more->why;
		return 0;
	}
	if (e->kind != more->kind)
		return contradict(m, e, "kind");
	if (e->dtype != more->dtype)
		return contradict(m, e, "dtype");
	if (e->n_dims != more->n_dims || memcmp(e->dims, more->dims, sizeof(e->dims)) != 0)
		return contradict(m, e, "shape");
	e->n_chunks += more->n_chunks;
	e->bytes = e->bytes ? e->bytes : more->bytes;
	return 0;
}

/* By offset; of one tensor. */
static int box_cmp(const struct uns_box *a, const struct uns_box *b)
{
	size_t d;

	for (d = 0; d < a->n; d++)
		if (a->lo[d] != b->lo[d])
			return a->lo[d] < b->lo[d] ? -1 : 1;
	return 0;
}

/* Sorts by offset. Of chunks at one offset, the one with storage comes first; it is kept. */
static int chunk_cmp(const void *pa, const void *pb)
{
	const struct uns_dcp_chunk *a = pa, *b = pb;
	int order = box_cmp(a->box, b->box);

	return order ? order : (b->storage != NULL) - (a->storage != NULL);
}

static int drop_equal_chunks(struct merge *m, struct uns_dcp_entry *e)
{
	size_t i, n = 0;

	if (e->n_chunks)
		qsort(e->chunk, e->n_chunks, sizeof(*e->chunk), chunk_cmp);
	for (i = 0; i < e->n_chunks; i++) {
		if (n == 0 || box_cmp(e->chunk[n - 1].box, e->chunk[i].box) != 0)
			e->chunk[n++] = e->chunk[i];
		else if (!uns_box_equal(e->chunk[n - 1].box, e->chunk[i].box))
			return contradict(m, e, "chunks: two sizes at the same offset");
	}
	e->n_chunks = n;
	return 0;
}

int uns_dcp_metadata_merge(const struct uns_dcp_metadata *parts, size_t n_parts, struct uns_arena *arena,
			   struct uns_dcp_metadata *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map at = UNS_MAP_INIT; /* key -> entry in out */
	struct merge m = { .arena = arena, .err = err };
	const struct uns_dcp_metadata *part, *end = parts + n_parts;
	const struct uns_dcp_entry *from;
	struct uns_dcp_entry *e;
	size_t i, n = 0;

	*out = (struct uns_dcp_metadata){ 0 };
	for (part = parts; part < end; part++)
		n += part->n_entries;
	UNS_TRY_ALLOC(out->entry = UNS_NEW_N(arena, struct uns_dcp_entry, n), err);
	for (part = parts; part < end; part++) {
		out->has_paths |= part->has_paths;
		out->version = out->version ? out->version : part->version;
		out->checkpoint_id = out->checkpoint_id ? out->checkpoint_id : part->checkpoint_id;
		for (from = part->entry; from < part->entry + part->n_entries; from++) {
			e = uns_map_get(&at, from->key);
			if (e) {
				UNS_TRY(entry_join(&m, e, from));
				continue;
			}
			e = &out->entry[out->n_entries++];
			*e = *from;
			e->chunk = NULL;
			UNS_TRY_ALLOC(uns_map_put(&at, e->key, e, NULL), err);
		}
	}
	for (e = out->entry; e < out->entry + out->n_entries; e++) {
		if (e->kind == UNS_DCP_TENSOR)
			UNS_TRY_ALLOC(e->chunk = UNS_NEW_N(arena, struct uns_dcp_chunk, e->n_chunks), err);
		e->n_chunks = 0;
	}
	for (part = parts; part < end; part++)
		for (from = part->entry; from < part->entry + part->n_entries; from++) {
			e = uns_map_get(&at, from->key);
			if (e->kind != UNS_DCP_TENSOR || from->n_chunks == 0)
				continue;
			memcpy(e->chunk + e->n_chunks, from->chunk, from->n_chunks * sizeof(*e->chunk));
			e->n_chunks += from->n_chunks;
		}
	for (i = 0; i < out->n_entries; i++)
		if (out->entry[i].kind == UNS_DCP_TENSOR)
			UNS_TRY(drop_equal_chunks(&m, &out->entry[i]));
	return 0;
}
