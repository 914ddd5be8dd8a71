/* Puts flat ranges of parts where they belong in the parameter. */
#include "dcp/megatron_space.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/text.h"

enum { SHAPE_TEXT = 256 };

struct space {
	struct uns_dcp_metadata *meta;
	struct uns_arena *arena, *parts;
	struct uns_map entries;	 /* key -> struct uns_dcp_entry */
	struct uns_box_pool boxes;
	struct uns_item_part *last; /* most items of a tensor are cut alike */
	struct uns_err *err;
};

static void space_fini(struct space *s)
{
	uns_map_fini(&s->entries);
	uns_box_pool_fini(&s->boxes);
}

static int find_entries(struct space *s)
{
	size_t i;

	for (i = 0; i < s->meta->n_entries; i++)
		if (!uns_map_put(&s->entries, s->meta->entry[i].key, &s->meta->entry[i], NULL))
			return uns_oom(s->err);
	return 0;
}

/* "decoder.x.weight" of "optimizer.state.exp_avg.decoder.x.weight", or of "chained_0.optimizer.state..."; NULL = the
 * entry is no state of an optimizer. */
static const char *parameter_of(const char *key)
{
	static const char root[] = "optimizer.state.";
	const char *state = strstr(key, root), *name;

	if (!state || (state != key && state[-1] != '.'))
		return NULL;
	name = strchr(state + strlen(root), '.');
	return name ? name + 1 : NULL;
}

static struct uns_shape shape_of(const struct uns_dcp_entry *e)
{
	struct uns_shape shape = { .n = (uint32_t)e->n_dims };

	memcpy(shape.dim, e->dims, e->n_dims * sizeof(*e->dims));
	return shape;
}

/* Makes the state UNKNOWN. */
__attribute__((format(printf, 4, 5))) static int odd(struct space *s, struct uns_dcp_entry *e, int code, const char *fmt,
						     ...)
{
	char buf[UNS_ERR_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	e->kind = UNS_DCP_UNKNOWN;
	e->code = code;
	e->why = uns_arena_printf(s->arena, "'%s' %s", e->key, buf);
	return e->why ? 0 : uns_oom(s->err);
}

/* The shape of a part: the parameter's, with each dimension divided. false: the state's shape is not made of it. */
static bool part_shape(const struct uns_dcp_entry *e, const struct uns_shape *whole, struct uns_shape *part)
{
	uint64_t elems = 1;
	uint32_t d;

	*part = *whole;
	for (d = 0; d < whole->n; d++) {
		if (!e->dims[d] || !whole->dim[d] || whole->dim[d] % e->dims[d])
			return false;
		part->dim[d] = whole->dim[d] / e->dims[d];
		if (__builtin_mul_overflow(elems, part->dim[d], &elems))
			return false;
	}
	return elems == e->dims[whole->n];
}

static struct uns_item_part *keep_part(struct space *s, uint64_t first, uint64_t n)
{
	if (s->last && s->last->first_elem == first && s->last->n_elems == n)
		return s->last;
	s->last = UNS_NEW(s->parts, struct uns_item_part);
	if (s->last)
		*s->last = (struct uns_item_part){ first, n };
	return s->last;
}

struct chunks {
	struct uns_dcp_chunk *v;
	size_t n, cap;
};

/* The boxes of the parameter that a range of a part is. */
static int add_boxes(struct space *s, const struct uns_shape *part, const struct uns_dcp_chunk *from, struct chunks *out)
{
	const uint32_t n = part->n;
	const uint64_t first = from->box->lo[n], count = from->box->len[n];
	struct uns_dcp_chunk chunk = { .storage = from->storage };
	struct uns_box box;
	uint64_t at, elems;
	uint32_t d;

	for (at = 0; at < count; at += elems) {
		elems = uns_box_at(part, first + at, first + count, &box);
		for (d = 0; d < n; d++)
			box.lo[d] += from->box->lo[d] * part->dim[d];
		chunk.box = uns_box_keep(&s->boxes, s->arena, &box);
		chunk.part = keep_part(s, at, count);
		if (!chunk.box || !chunk.part || !UNS_ARENA_ROOM(s->arena, out->v, out->n, out->cap))
			return uns_oom(s->err);
		out->v[out->n++] = chunk;
	}
	return 0;
}

/* Is the chunk a range of one part? That it is inside the tensor was checked. */
static bool is_of_one_part(const struct uns_box *box)
{
	uint32_t d;

	for (d = 0; d + 1 < box->n; d++)
		if (box->len[d] != 1)
			return false;
	return true;
}

static int restore(struct space *s, struct uns_dcp_entry *e, const struct uns_dcp_entry *parameter)
{
	const struct uns_shape whole = shape_of(parameter), saved = shape_of(e);
	char has[SHAPE_TEXT], wants[SHAPE_TEXT];
	struct chunks chunks = { 0 };
	struct uns_shape part;
	size_t i;

	if (!part_shape(e, &whole, &part))
		return odd(s, e, -EBADMSG, "has the shape %s, which is not made of equal parts of its parameter's, %s",
			   uns_shape_text(&saved, has, sizeof(has)), uns_shape_text(&whole, wants, sizeof(wants)));
	for (i = 0; i < e->n_chunks; i++) {
		if (!is_of_one_part(e->chunk[i].box))
			return odd(s, e, -EBADMSG, "has a chunk of several of its parameter's parts");
		if (e->chunk[i].storage && e->chunk[i].storage->n_transforms)
			return odd(s, e, -ENOTSUP, "is flat and compressed, which unshard cannot read");
		UNS_TRY(add_boxes(s, &part, &e->chunk[i], &chunks));
	}
	e->n_dims = whole.n;
	memcpy(e->dims, whole.dim, sizeof(e->dims));
	e->chunk = chunks.v;
	e->n_chunks = chunks.n;
	return 0;
}

int uns_megatron_space_restore(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_arena *parts,
			       struct uns_err *err)
{
	UNS_CLEANUP(space_fini) struct space s = { .meta = meta, .arena = arena, .parts = parts, .err = err };
	struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	const struct uns_dcp_entry *parameter;
	const char *name;

	if (meta->has_paths)
		return 0;
	UNS_TRY(find_entries(&s));
	for (; e < end; e++) {
		name = e->kind == UNS_DCP_TENSOR ? parameter_of(e->key) : NULL;
		parameter = name ? uns_map_get(&s.entries, name) : NULL;
		if (parameter && parameter->kind == UNS_DCP_TENSOR && e->n_dims == parameter->n_dims + 1)
			UNS_TRY(restore(&s, e, parameter));
	}
	return 0;
}
