/* The union of rank-local DCP metadata. Each part is already sound in itself; what can still be wrong
 * is that ranks contradict each other. */
#include "dcp/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"

struct merge {
	struct uns_map at; /* key -> entry in out */
	struct uns_arena *arena;
	struct uns_dcp_metadata *out;
	struct uns_err *err;
};

static int contradict(struct merge *m, struct uns_dcp_entry *e, const char *about)
{
	e->kind = UNS_DCP_UNKNOWN;
	e->code = -EBADMSG;
	e->why = uns_arena_printf(m->arena, "'%s': ranks disagree about its %s", e->key, about);
	return e->why ? 0 : uns_oom(m->err);
}

static bool same_shape(const struct uns_dcp_entry *a, const struct uns_dcp_entry *b)
{
	return a->n_dims == b->n_dims && memcmp(a->dims, b->dims, sizeof(a->dims)) == 0;
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
	if (!same_shape(e, more))
		return contradict(m, e, "shape");
	e->n_chunks += more->n_chunks;
	e->bytes = e->bytes ? e->bytes : more->bytes;
	return 0;
}

static int entry_meet(struct merge *m, const struct uns_dcp_entry *from)
{
	struct uns_dcp_entry *e = uns_map_get(&m->at, from->key);

	if (e)
		return entry_join(m, e, from);
	e = &m->out->entry[m->out->n_entries++];
	*e = *from;
	e->chunk = NULL;
	return uns_map_put(&m->at, e->key, e, NULL) ? 0 : uns_oom(m->err);
}

static int part_meet(struct merge *m, const struct uns_dcp_metadata *part)
{
	size_t i;

	m->out->has_paths |= part->has_paths;
	m->out->version = m->out->version ? m->out->version : part->version;
	if (!m->out->checkpoint_id)
		m->out->checkpoint_id = part->checkpoint_id;
	for (i = 0; i < part->n_entries; i++)
		UNS_TRY(entry_meet(m, &part->entry[i]));
	return 0;
}

static int make_room(struct merge *m)
{
	struct uns_dcp_entry *e;
	size_t i;

	for (i = 0; i < m->out->n_entries; i++) {
		e = &m->out->entry[i];
		if (e->kind == UNS_DCP_TENSOR) {
			e->chunk = UNS_NEW_N(m->arena, struct uns_dcp_chunk, e->n_chunks);
			if (!e->chunk)
				return uns_oom(m->err);
		}
		e->n_chunks = 0;
	}
	return 0;
}

static void part_gather(struct merge *m, const struct uns_dcp_metadata *part)
{
	const struct uns_dcp_entry *from;
	struct uns_dcp_entry *e;
	size_t i;

	for (i = 0; i < part->n_entries; i++) {
		from = &part->entry[i];
		e = uns_map_get(&m->at, from->key);
		if (e->kind != UNS_DCP_TENSOR || from->n_chunks == 0)
			continue;
		memcpy(e->chunk + e->n_chunks, from->chunk, from->n_chunks * sizeof(*e->chunk));
		e->n_chunks += from->n_chunks;
	}
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

static int drop_equal(struct merge *m, struct uns_dcp_entry *e)
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

static int merge_all(struct merge *m, const struct uns_dcp_metadata *parts, size_t n_parts)
{
	size_t i, n = 0;

	for (i = 0; i < n_parts; i++)
		n += parts[i].n_entries;
	m->out->entry = UNS_NEW_N(m->arena, struct uns_dcp_entry, n);
	if (!m->out->entry)
		return uns_oom(m->err);
	for (i = 0; i < n_parts; i++)
		UNS_TRY(part_meet(m, &parts[i]));
	UNS_TRY(make_room(m));
	for (i = 0; i < n_parts; i++)
		part_gather(m, &parts[i]);
	for (i = 0; i < m->out->n_entries; i++)
		if (m->out->entry[i].kind == UNS_DCP_TENSOR)
			UNS_TRY(drop_equal(m, &m->out->entry[i]));
	return 0;
}

static void merge_fini(struct merge *m)
{
	uns_map_fini(&m->at);
}

int uns_dcp_metadata_merge(const struct uns_dcp_metadata *parts, size_t n_parts,
			   struct uns_arena *arena, struct uns_dcp_metadata *out,
			   struct uns_err *err)
{
	UNS_CLEANUP(merge_fini) struct merge m = { .arena = arena, .out = out, .err = err };

	*out = (struct uns_dcp_metadata){ 0 };
	return merge_all(&m, parts, n_parts);
}
