/* Puts flat ranges of parts where they belong in the parameter. */
#include "megatron/space.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "megatron/flat.h"

enum { SHAPE_TEXT = 256 };

struct space {
	struct uns_dcp_metadata *meta;
	struct uns_arena *arena;
	struct uns_map entries; /* key -> struct uns_dcp_entry */
	struct uns_megatron_flat flat;
	struct uns_err *err;
};

static void space_fini(struct space *s)
{
	uns_map_fini(&s->entries);
	uns_megatron_flat_fini(&s->flat);
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
__attribute__((format(printf, 4, 5))) static int state_refuse(struct space *s, struct uns_dcp_entry *e, int code,
							      const char *fmt, ...)
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

/* *part: the shape of a part, which is the parameter's with each dimension divided by how many parts the state has in
 * it. Returns false if the state's shape is not made of equal parts. */
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

/* Where the part is in the parameter: `at` has its index in each dimension. */
static struct uns_box box_of_part(const struct uns_shape *part, const struct uns_box *at)
{
	struct uns_box box = { .n = part->n };
	uint32_t d;

	for (d = 0; d < part->n; d++) {
		box.lo[d] = at->lo[d] * part->dim[d];
		box.len[d] = part->dim[d];
	}
	return box;
}

static int state_restore(struct space *s, struct uns_dcp_entry *e, const struct uns_dcp_entry *parameter)
{
	const struct uns_shape whole = shape_of(parameter), saved = shape_of(e);
	char has[SHAPE_TEXT], wants[SHAPE_TEXT];
	struct uns_megatron_chunks chunks = { 0 };
	struct uns_shape part;
	struct uns_box of;
	uint32_t d;
	size_t i;

	if (!part_shape(e, &whole, &part))
		return state_refuse(
			s, e, -EBADMSG, "has the shape %s, which is not made of equal parts of its parameter's, %s",
			uns_shape_text(&saved, has, sizeof(has)), uns_shape_text(&whole, wants, sizeof(wants)));
	for (i = 0; i < e->n_chunks; i++) {
		for (d = 0; d < whole.n && e->chunk[i].box->len[d] == 1; d++)
			;
		if (d < whole.n)
			return state_refuse(s, e, -EBADMSG, "has a chunk of several of its parameter's parts");
		if (e->chunk[i].storage && e->chunk[i].storage->n_transforms)
			return state_refuse(s, e, -ENOTSUP, "is flat and compressed, which unshard cannot read");
		of = box_of_part(&part, e->chunk[i].box);
		UNS_TRY(uns_megatron_flat_add(&s->flat,
					      &(struct uns_megatron_range){ .of = &of,
									    .first = e->chunk[i].box->lo[whole.n],
									    .count = e->chunk[i].box->len[whole.n],
									    .storage = e->chunk[i].storage,
									    .n_item = e->chunk[i].box->len[whole.n] },
					      &chunks, s->err));
	}
	e->n_dims = whole.n;
	memcpy(e->dims, whole.dim, sizeof(e->dims));
	e->chunk = chunks.v;
	e->n_chunks = chunks.n;
	return 0;
}

static bool has_states(const struct uns_dcp_metadata *meta)
{
	size_t i = 0;

	while (i < meta->n_entries && !parameter_of(meta->entry[i].key))
		i++;
	return i < meta->n_entries;
}

int uns_megatron_space_restore(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
			       struct uns_err *err)
{
	UNS_CLEANUP(space_fini)
	struct space s = { .meta = meta, .arena = arena, .flat = { .arena = arena, .parts = &cat->arena }, .err = err };
	struct uns_dcp_entry *e = meta->entry, *end = e + meta->n_entries;
	const struct uns_dcp_entry *parameter;
	const char *name;

	if (meta->has_paths || !has_states(meta))
		return 0;
	UNS_TRY_ALLOC(uns_map_reserve(&s.entries, meta->n_entries), err);
	for (; e < end; e++)
		UNS_TRY_ALLOC(uns_map_put(&s.entries, e->key, e, NULL), err);
	for (e = meta->entry; e < end; e++) {
		name = e->kind == UNS_DCP_TENSOR ? parameter_of(e->key) : NULL;
		parameter = name ? uns_map_get(&s.entries, name) : NULL;
		if (parameter && parameter->kind == UNS_DCP_TENSOR && e->n_dims == parameter->n_dims + 1)
			UNS_TRY(state_restore(&s, e, parameter));
	}
	return 0;
}
