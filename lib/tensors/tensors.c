/* unshard_tensors_*: the tensors of a checkpoint, or of a view's files of weights, as a list; and the bytes of
 * one, or of a box of it. One layout holds all of them, one behind the other: reading is the read of a file. */
#include "tensors/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cast.h"
#include "model/cover.h"
#include "names/published_names.h"
#include "session/reads.h"
#include "session/shows.h"
#include "session/walk.h"

/* Rows of a box that lie within so many bytes of each other are read together, gaps and all. */
enum { TOGETHER_BYTES = 256 << 10 };

/* What a tensor of the list is, and where its bytes begin in the layout. */
struct listed {
	struct uns_named_tensor named;
	uint64_t at_bytes;
};

struct unshard_tensors {
	struct unshard *u;
	struct dir_record *record;
	struct snapshot *snap;
	bool of_view; /* the view has proven that all of them can be served */
	struct uns_vtree renamed; /* of tensors_open_published: its names */
	struct uns_arena arena;
	struct uns_map by_name; /* "STATE\nNAME" -> index + 1 */
	struct unshard_tensor *v;
	struct listed *listed; /* parallel to v */
	struct uns_layout_builder building;
	struct uns_layout layout;
	size_t n;
};

static const enum unshard_role role_of[] = {
	[UNS_ROLE_WEIGHT] = UNSHARD_WEIGHT,           [UNS_ROLE_BUFFER] = UNSHARD_BUFFER,
	[UNS_ROLE_MASTER] = UNSHARD_MASTER,           [UNS_ROLE_EXP_AVG] = UNSHARD_EXP_AVG,
	[UNS_ROLE_EXP_AVG_SQ] = UNSHARD_EXP_AVG_SQ,   [UNS_ROLE_STEP] = UNSHARD_STEP,
	[UNS_ROLE_OPTIM_OTHER] = UNSHARD_OPTIM_OTHER, [UNS_ROLE_OTHER] = UNSHARD_OTHER,
};

/* -- the list -- */

static const char *key_of(struct uns_arena *arena, const char *name, const char *state)
{
	return uns_arena_printf(arena, "%s\n%s", state ? state : "", name);
}

static const char *state_of(const struct uns_tensor *t, enum unshard_role role)
{
	if (role == UNSHARD_WEIGHT || !uns_role_is_optimizer(t->role))
		return NULL;
	return t->state ? t->state : unshard_role_name(role);
}

static int list_add(struct unshard_tensors *l, const struct uns_named_tensor *named, struct uns_err *err)
{
	const struct uns_tensor *t = named->tensor;
	const struct uns_shape *shape = uns_named_shape(named);
	struct unshard_tensor *out = &l->v[l->n];
	uint64_t size = uns_shape_elems(shape);
	const char *key;

	*out = (struct unshard_tensor){ .size = sizeof(*out),
					.name = named->name,
					.key = t->key,
					.root = t->root,
					.role = role_of[t->role],
					.dtype = (enum unshard_dtype)named->out,
					.n_dims = shape->n };
	if (l->of_view && t->role == UNS_ROLE_MASTER)
		out->role = UNSHARD_WEIGHT; /* it is shown as the weight that it is a copy of */
	out->state = state_of(t, out->role);
	memcpy(out->shape, shape->dim, shape->n * sizeof(*out->shape));
	if (!uns_u64_mul(size, uns_dtype_size(named->out), &out->size_bytes) ||
	    !uns_u64_add(l->building.at_bytes, out->size_bytes, &size))
		return uns_fail(err, -ENOTSUP, "tensor %s: its number of bytes is too large to be counted", t->key);
	l->listed[l->n] = (struct listed){ *named, l->building.at_bytes };
	uns_named_layout(&l->building, named);
	key = key_of(&l->arena, out->name, out->state);
	if (!key ||
	    (!uns_map_get(&l->by_name, key) && !uns_map_put(&l->by_name, key, (void *)((uintptr_t)l->n + 1), NULL)))
		return uns_oom(err);
	l->n++;
	return 0;
}

static int list_begin(struct unshard_tensors *l, size_t n, struct uns_err *err)
{
	l->v = UNS_NEW_N(&l->arena, struct unshard_tensor, n);
	l->listed = UNS_NEW_N(&l->arena, struct listed, n);
	l->building.arena = &l->arena;
	return uns_arena_check(&l->arena, err);
}

/* A directory that save_pretrained wrote has the names of its files in every view. */
static int list_add_published(struct unshard_tensors *l, const struct uns_vtree *tree, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct uns_named_tensor *v = calloc(tree->n_tensors, sizeof(*v));
	size_t n = tree->n_tensors, i;

	UNS_TRY_ALLOC(v, err);
	memcpy(v, tree->tensor, n * sizeof(*v));
	UNS_TRY(uns_published_apply(&l->snap->beside.config_info, NULL, &v, &n, &l->renamed, err));
	UNS_TRY(list_begin(l, n, err));
	for (i = 0; i < n; i++)
		UNS_TRY(list_add(l, &v[i], err));
	return 0;
}

static int list_add_of_view(struct unshard_tensors *l, const struct uns_view *view, uint64_t parameter,
			    const char *name, bool published, struct uns_err *err)
{
	const struct shown *shown;
	size_t i;

	UNS_TRY(show_served(l->u, l->record, l->snap, view, parameter, &shown, err));
	if (!shown->tree.n_tensors)
		return uns_fail(err, -ENOTSUP,
				"%s: the view %s has no safetensors files, so its tensors cannot be listed; name the "
				"view weights, or no view for the checkpoint's own tensors",
				l->record->path, name);
	l->of_view = true;
	if (published && l->snap->cat->summary.is_published)
		return list_add_published(l, &shown->tree, err);
	UNS_TRY(list_begin(l, shown->tree.n_tensors, err));
	for (i = 0; i < shown->tree.n_tensors; i++)
		UNS_TRY(list_add(l, &shown->tree.tensor[i], err));
	return 0;
}

static int list_fill(struct unshard_tensors *l, const char *checkpoint, const char *view, bool published,
		     struct uns_err *err)
{
	uint64_t parameter = 0;
	const struct uns_view *shown = view ? view_find(view, strlen(view), &parameter) : NULL;
	const struct uns_catalog *cat;
	const struct uns_tensor *t;

	if (view && !shown)
		return uns_fail(err, -ENOENT, "no such view: %s", view);
	UNS_TRY(record_get_for(l->u, checkpoint, shown, parameter, &l->record, err));
	if (!l->record->is.format)
		return walk_no_checkpoint(l->u, checkpoint, err);
	UNS_TRY(snapshot_get(l->u, l->record, &l->snap, err));
	cat = l->snap->cat;
	UNS_TRY(view ? list_add_of_view(l, shown, parameter, view, published, err)
		     : list_begin(l, cat->n_tensors, err));
	for (t = cat->tensors; !view && t < cat->tensors + cat->n_tensors; t++)
		UNS_TRY(list_add(l, &(struct uns_named_tensor){ t->name, t, t->dtype, NULL }, err));
	return uns_layout_build(&l->building, l->snap->cat, &l->layout, err);
}

static int list_open(struct unshard *u, const char *checkpoint, const char *view, bool published, unshard_tensors **out,
		     struct uns_err *err)
{
	struct unshard_tensors *l = calloc(1, sizeof(*l));
	int code;

	UNS_TRY_ALLOC(l, err);
	l->u = u;
	code = list_fill(l, checkpoint, view, published, err);
	if (code < 0)
		unshard_tensors_close(l);
	else
		*out = l;
	return code;
}

int unshard_tensors_open(unshard *u, const char *checkpoint, const char *view, unshard_tensors **out,
			 struct unshard_error *error)
{
	struct uns_err err = { 0 };
	int code = list_open(u, checkpoint, view, false, out, &err);

	return give_error(error, &err, code);
}

int tensors_open_published(struct unshard *u, const char *checkpoint, unshard_tensors **out, struct uns_err *err)
{
	return list_open(u, checkpoint, "weights", true, out, err);
}

void unshard_tensors_close(unshard_tensors *l)
{
	if (!l)
		return;
	snapshot_put(l->u, l->snap);
	record_put(l->u, l->record);
	uns_map_fini(&l->by_name);
	uns_vtree_fini(&l->renamed);
	uns_arena_fini(&l->arena);
	free(l);
}

size_t unshard_tensors_count(const unshard_tensors *l)
{
	return l->n;
}

const struct unshard_tensor *unshard_tensors_at(const unshard_tensors *l, size_t i)
{
	return i < l->n ? &l->v[i] : NULL;
}

int unshard_tensors_find(const unshard_tensors *l, const char *name, const char *state, size_t *i,
			 struct unshard_error *error)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *key = key_of(&arena, name, state);
	struct uns_err err = { 0 };
	uintptr_t found;

	if (!key)
		return give_error(error, &err, uns_oom(&err));
	found = (uintptr_t)uns_map_get(&l->by_name, key);
	if (!found)
		return give_error(error, &err,
				  uns_fail(&err, -ENOENT, "%s: found no tensor %s%s%s", l->record->path,
					   state ? state : "", state ? " of " : "", name));
	*i = found - 1;
	return 0;
}

/* -- reading -- */

static const enum uns_way way_of[] = {
	[UNSHARD_WAY_SUITED] = UNS_WAY_SUITED,
	[UNSHARD_WAY_CACHE] = UNS_WAY_CACHE,
	[UNSHARD_WAY_DIRECT] = UNS_WAY_DIRECT,
};

/* Elements of one tensor in the type that is asked for. */
struct source {
	struct read_from from;
	uint64_t at_bytes; /* of its first element, in from.layout */
	size_t elem_bytes;
};

static int read_elems(const struct source *s, uint64_t first, uint64_t n, uint8_t *dst, struct uns_err *err)
{
	ssize_t got = session_read(&s->from, dst, n * s->elem_bytes, s->at_bytes + first * s->elem_bytes, err);

	return got < 0 ? (int)got : 0;
}

/* Rows k .. k+n, by way of scratch memory. What is between them is likely to be wanted soon, by a reader of another
 * box of the same tensor: it stays in the page cache. */
static int read_rows(const struct source *s, const struct uns_stretches *stretches, uint64_t k, uint64_t n,
		     uint8_t *scratch, uint8_t *dst, struct uns_err *err)
{
	size_t row_bytes = stretches->stretch_elems * s->elem_bytes;
	uint64_t first = uns_stretches_at(stretches, k), i;
	struct source shared = *s;

	if (shared.from.way == UNS_WAY_SUITED)
		shared.from.way = UNS_WAY_CACHE;
	UNS_TRY(read_elems(&shared, first, uns_stretches_at(stretches, k + n - 1) + stretches->stretch_elems - first,
			   scratch, err));
	for (i = 0; i < n; i++)
		memcpy(dst + i * row_bytes, scratch + (uns_stretches_at(stretches, k + i) - first) * s->elem_bytes,
		       row_bytes);
	return 0;
}

static int read_box(const struct source *s, const struct uns_stretches *stretches, uint8_t *dst, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *scratch = NULL;
	uint64_t k, n, first;

	for (k = 0; k < stretches->n; k += n, dst += n * stretches->stretch_elems * s->elem_bytes) {
		first = uns_stretches_at(stretches, k);
		for (n = 1;
		     k + n < stretches->n && uns_stretches_at(stretches, k + n) + stretches->stretch_elems - first <=
						     TOGETHER_BYTES / s->elem_bytes;)
			n++;
		if (n > 1 && !scratch && !(scratch = malloc(TOGETHER_BYTES)))
			return uns_oom(err);
		if (n > 1)
			UNS_TRY(read_rows(s, stretches, k, n, scratch, dst, err));
		else
			UNS_TRY(read_elems(s, uns_stretches_at(stretches, k), stretches->stretch_elems, dst, err));
	}
	return 0;
}

static struct uns_shape shape_of(const struct unshard_tensor *t)
{
	struct uns_shape shape = { .n = t->n_dims };

	memcpy(shape.dim, t->shape, sizeof(shape.dim));
	return shape;
}

static int take_box(const struct unshard_tensor *t, const uint64_t *lo, const uint64_t *len, struct uns_box *out,
		    struct uns_err *err)
{
	const struct uns_shape shape = shape_of(t);
	char text[128];

	*out = (struct uns_box){ .n = t->n_dims };
	memcpy(out->len, len ? len : t->shape, t->n_dims * sizeof(*out->len));
	if (lo)
		memcpy(out->lo, lo, t->n_dims * sizeof(*out->lo));
	if (!lo != !len || !uns_box_inside(out, &shape))
		return uns_fail(err, -EINVAL, "tensor %s: the box is outside its shape %s", t->name,
				uns_shape_text(&shape, text, sizeof(text)));
	return 0;
}

/* Proves that the bytes of one of the checkpoint's own tensors are complete; a view has proven that of its tensors. An
 * optimizer whose form is not understood (-ENOTSUP) keeps no tensor from being read. */
static int tensor_prove(const struct unshard_tensors *l, const struct uns_tensor *t, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const enum uns_scope scope = uns_role_is_model(t->role)       ? UNS_SCOPE_WEIGHTS
				     : uns_role_is_optimizer(t->role) ? UNS_SCOPE_OPTIMIZER
								      : UNS_SCOPE_ALL;
	struct uns_err why = { .keep = &arena };
	int code;

	if (l->of_view)
		return 0;
	code = uns_cover_refusal(l->snap->cat, scope, &why);
	if (code < 0 && code != -ENOTSUP)
		return uns_fail(err, code, "%s", why.text);
	why = (struct uns_err){ .keep = &arena };
	code = uns_cover_check(l->snap->cat, t, &why);
	return code < 0 ? uns_fail(err, code, "%s", why.text) : 0;
}

int tensor_box_take(const unshard_tensors *l, size_t i, const uint64_t *lo, const uint64_t *len,
		    enum unshard_dtype dtype, uint64_t size_bytes, struct tensor_box *out, struct uns_err *err)
{
	const struct unshard_tensor *t = unshard_tensors_at(l, i);

	if (!t)
		return uns_fail(err, -EINVAL, "there is no tensor %zu of %zu", i, l->n);
	*out = (struct tensor_box){ .list = l, .i = i, .dtype = dtype };
	if (dtype == UNSHARD_AS_STORED)
		out->dtype = t->dtype;
	UNS_TRY(take_box(t, lo, len, &out->box, err));
	if (!unshard_dtype_size(out->dtype))
		return uns_fail(err, -EINVAL, "tensor %s: dtype %d does not exist", t->name, (int)out->dtype);
	if (!uns_cast_exists((enum uns_dtype)t->dtype, (enum uns_dtype)out->dtype))
		return uns_fail(err, -ENOTSUP, "tensor %s: %s cannot be converted to %s", t->name,
				unshard_dtype_name(t->dtype), unshard_dtype_name(out->dtype));
	if (!uns_u64_mul(uns_box_elems(&out->box), unshard_dtype_size(out->dtype), &out->size_bytes) ||
	    out->size_bytes != size_bytes)
		return uns_fail(err, -EINVAL, "tensor %s: the buffer is %llu bytes long, not %llu", t->name,
				(unsigned long long)size_bytes, (unsigned long long)out->size_bytes);
	return 0;
}

int tensor_box_read(const struct tensor_box *b, enum unshard_way way, void *buf, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const unshard_tensors *l = b->list;
	const struct unshard_tensor *t = &l->v[b->i];
	const struct listed *listed = &l->listed[b->i];
	struct uns_named_tensor as = listed->named;
	struct uns_layout_builder building = { .arena = &arena };
	struct uns_layout casts;
	struct source s = { .from = { l->u, t->name, l->record, l->snap->backing, &l->layout, way_of[way], NULL },
			    .at_bytes = listed->at_bytes,
			    .elem_bytes = unshard_dtype_size(b->dtype) };
	const struct uns_shape shape = shape_of(t);
	struct uns_stretches stretches = uns_stretches_of_box(&b->box, &shape);

	UNS_TRY(tensor_prove(l, as.tensor, err));
	if (b->dtype != t->dtype) {
		as.out = (enum uns_dtype)b->dtype;
		uns_named_layout(&building, &as);
		UNS_TRY(uns_layout_build(&building, l->snap->cat, &casts, err));
		s.at_bytes = 0;
		s.from.layout = &casts;
	}
	return read_box(&s, &stretches, buf, err);
}

int tensor_check(const unshard_tensors *l, size_t i, struct uns_err *err)
{
	return tensor_prove(l, l->listed[i].named.tensor, err);
}

int tensor_stretch_read(const unshard_tensors *l, size_t i, uint64_t first, uint64_t n, void *buf, struct uns_err *err)
{
	const struct source s = { .from = { l->u, l->v[i].name, l->record, l->snap->backing, &l->layout, UNS_WAY_CACHE,
					    NULL },
				  .at_bytes = l->listed[i].at_bytes,
				  .elem_bytes = unshard_dtype_size(l->v[i].dtype) };

	return read_elems(&s, first, n, buf, err);
}

const struct uns_tensor *tensor_in_catalog(const unshard_tensors *l, size_t i)
{
	return l->listed[i].named.tensor;
}

const struct uns_catalog *tensors_catalog(const unshard_tensors *l)
{
	return l->snap->cat;
}

int unshard_tensor_read(const unshard_tensors *l, size_t i, const uint64_t *lo, const uint64_t *len,
			enum unshard_dtype dtype, void *buf, size_t buf_bytes, struct unshard_error *error)
{
	struct uns_err err = { 0 };
	struct tensor_box box;
	int code = tensor_box_take(l, i, lo, len, dtype, buf_bytes, &box, &err);

	if (code == 0)
		code = tensor_box_read(&box, UNSHARD_WAY_CACHE, buf, &err);
	return give_error(error, &err, code);
}
