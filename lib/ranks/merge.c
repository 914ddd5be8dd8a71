/* Merging what ranks say about a tensor: equal type and global shape, or a finding that names both
 * files. A plain tensor that several ranks hold is taken for copies only while nothing speaks
 * against it: equal shapes, and equal CRCs where they are recorded. */
#include "ranks/merge.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "ranks/merged.h"

int uns_rank_merge_init(struct uns_rank_merge *m, struct uns_catalog *cat, enum uns_scope scope,
			size_t n_files, struct uns_err *err)
{
	size_t i;

	*m = (struct uns_rank_merge){ .cat = cat, .scope = scope, .n_files = n_files };
	uns_rank_findings_init(&m->findings, cat);
	m->file = UNS_NEW_N(&m->scratch, struct uns_rank_read, n_files);
	if (!m->file)
		return uns_oom(err);
	for (i = 0; i < n_files; i++)
		m->file[i].writer = -1;
	return 0;
}

void uns_rank_merge_fini(struct uns_rank_merge *m)
{
	uns_rank_findings_fini(&m->findings);
	uns_map_fini(&m->by_key);
	uns_map_fini(&m->unread);
	uns_arena_fini(&m->scratch);
}

void uns_rank_merge_begin_file(struct uns_rank_merge *m, const struct uns_rank_source *source)
{
	m->file[source->index] = (struct uns_rank_read){ source->path, source->rank, -1, false };
}

void uns_rank_merge_end_file(struct uns_rank_merge *m, const struct uns_rank_source *source)
{
	m->file[source->index].whole = true;
	m->n_read++;
}

static const char *dtype_text(const struct uns_tensor *t)
{
	return uns_dtype_info(t->dtype)->torch;
}

/* -- merging -- */

/* The strings that came with the tensor live only as long as its file is open. */
static bool keep_strings(struct uns_arena *arena, struct uns_tensor *t)
{
	t->key = uns_arena_str(arena, t->key);
	t->name = uns_arena_str(arena, t->name);
	if (t->state)
		t->state = uns_arena_str(arena, t->state);
	return t->key && t->name;
}

static void append_parts(struct uns_merged *t, struct uns_rank_part *first)
{
	if (t->last)
		t->last->next = first;
	else
		t->first = first;
	for (; first; first = first->next)
		t->last = first;
}

static int merge_new(struct uns_rank_merge *m, const struct uns_rank_source *source,
		     const struct uns_rank_view *view, struct uns_err *err)
{
	struct uns_merged *t = UNS_NEW(&m->scratch, struct uns_merged);

	if (!t)
		return uns_oom(err);
	t->tensor = view->tensor;
	t->in_file = UNS_NEW_N(&m->scratch, bool, m->n_files);
	if (!t->in_file || !keep_strings(&m->cat->arena, &t->tensor) ||
	    !uns_map_put(&m->by_key, t->tensor.key, t, NULL))
		return uns_oom(err);
	t->path = source->path;
	t->sharded = t->tensor.sharded = view->sharded;
	t->n_mesh = view->n_mesh;
	memcpy(t->mesh, view->mesh, sizeof(t->mesh));
	t->crc = view->crc;
	t->has_value = view->has_value;
	t->value = view->value;
	append_parts(t, view->first);
	m->n_sharded += view->sharded;
	if (m->last)
		m->last->next = t;
	else
		m->first = t;
	m->last = t;
	return 0;
}

static bool same_mesh(const struct uns_merged *t, const struct uns_rank_view *view)
{
	return !t->n_mesh || !view->n_mesh ||
	       (t->n_mesh == view->n_mesh &&
		memcmp(t->mesh, view->mesh, t->n_mesh * sizeof(*t->mesh)) == 0);
}

static struct uns_shape mesh_shape(const uint64_t *mesh, size_t n)
{
	struct uns_shape shape = { .n = (uint32_t)n };

	memcpy(shape.dim, mesh, n * sizeof(*mesh));
	return shape;
}

/* What findings about a tensor in one of the files begin with. */
#define OF_FILE(m, what, source)                                                                   \
	.id = (what), .scope = (m)->scope, .file = (source)->path, .rank = uns_rank((source)->rank)

static int tell_mesh(struct uns_rank_merge *m, const struct uns_rank_source *source,
		     const struct uns_rank_view *view, const struct uns_merged *t)
{
	struct uns_shape there = mesh_shape(view->mesh, view->n_mesh);
	struct uns_shape here = mesh_shape(t->mesh, t->n_mesh);
	char x[128], y[128];

	return uns_rank_findings_add(
		&m->findings,
		UNS_FINDING(OF_FILE(m, UNS_FOUND_RANK_MESHES_DIFFER, source), .tensor = t->tensor.key,
			    .found = uns_str(uns_shape_text(&there, x, sizeof(x))),
			    .expected = uns_str(uns_shape_text(&here, y, sizeof(y))),
			    .arg = { { "other_file", uns_str(t->path) } }));
}

static int tell_shape(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      const struct uns_rank_view *view, const struct uns_merged *t)
{
	char x[128], y[128];

	return uns_rank_findings_add(
		&m->findings,
		UNS_FINDING(OF_FILE(m, UNS_FOUND_RANK_SHAPES_DIFFER, source), .tensor = t->tensor.key,
			    .found = uns_str(uns_shape_text(&view->tensor.shape, x, sizeof(x))),
			    .expected = uns_str(uns_shape_text(&t->tensor.shape, y, sizeof(y))),
			    .arg = { { "found_kind", uns_str(view->sharded ? "sharded" : "plain") },
				     { "expected_kind", uns_str(t->sharded ? "sharded" : "plain") },
				     { "other_file", uns_str(t->path) } }));
}

static int tell_other(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      enum uns_finding_id id, const struct uns_merged *t, const char *found,
		      const char *expected)
{
	return uns_rank_findings_add(&m->findings,
				     UNS_FINDING(OF_FILE(m, id, source), .tensor = t->tensor.key,
						 .found = uns_str(found),
						 .expected = uns_str(expected),
						 .arg = { { "other_file", uns_str(t->path) } }));
}

static int tell_steps(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      const struct uns_rank_view *view, const struct uns_merged *t)
{
	char found[32], expected[32];

	snprintf(found, sizeof(found), "%.15g", view->value);
	snprintf(expected, sizeof(expected), "%.15g", t->value);
	return tell_other(m, source, UNS_FOUND_RANK_STEPS_DIFFER, t, found, expected);
}

/* Returns 0 if the view agrees with other ranks', 1 if it does not, after reporting it. */
static int tell_unlike(struct uns_rank_merge *m, const struct uns_rank_source *source,
		       const struct uns_rank_view *view, const struct uns_merged *t)
{
	const struct uns_tensor *a = &t->tensor, *b = &view->tensor;
	int code = 0;

	if (a->dtype != b->dtype)
		code = tell_other(m, source, UNS_FOUND_RANK_TYPES_DIFFER, t, dtype_text(b),
				  dtype_text(a));
	else if (!uns_shape_equal(&a->shape, &b->shape) || t->sharded != view->sharded)
		code = tell_shape(m, source, view, t);
	else if (!same_mesh(t, view))
		code = tell_mesh(m, source, view, t);
	else if (a->role == UNS_ROLE_STEP && t->has_value && view->has_value &&
		 t->value != view->value)
		code = tell_steps(m, source, view, t);
	else
		return 0;
	return code < 0 ? code : 1;
}

static int merge_into(struct uns_rank_merge *m, const struct uns_rank_source *source,
		      const struct uns_rank_view *view, struct uns_merged *t)
{
	int unlike = tell_unlike(m, source, view, t);

	if (unlike) {
		t->told = true;
		return unlike < 0 ? unlike : 0;
	}
	if (!t->differs && t->crc && view->crc && t->crc != view->crc)
		t->differs = source->path;
	append_parts(t, view->first);
	return 0;
}

/* Pieces are placed by the rank in the content. A trainer that resumes goes by the file's name, so both are compared. */
static void note_writer(struct uns_rank_merge *m, const struct uns_rank_source *source,
			const struct uns_rank_view *view)
{
	struct uns_rank_read *file = &m->file[source->index];
	uint64_t ranks = 1;
	size_t i;

	if (file->writer < 0)
		file->writer = view->rank;
	for (i = 0; i < view->n_mesh; i++)
		if (!uns_u64_mul(ranks, view->mesh[i], &ranks))
			return;
	if (view->n_mesh && ranks > m->mesh_size)
		m->mesh_size = ranks;
}

/* The file holds it, in whatever state. */
static int mark_unread(struct uns_rank_merge *m, const char *key)
{
	const char *kept = uns_arena_str(&m->scratch, key);

	return kept && uns_map_put(&m->unread, kept, m, NULL) ? 0 : -ENOMEM;
}

static int tell_unread(struct uns_rank_merge *m, const struct uns_rank_source *source,
		       const char *key, const struct uns_err *why)
{
	struct uns_finding f = uns_finding_of_err(why, m->scope);

	if (!why->finding)
		f.id = f.code == -ENOTSUP ? UNS_FOUND_RANK_TENSOR_UNKNOWN
					  : UNS_FOUND_RANK_TENSOR_DAMAGED;
	f.file = source->path;
	f.rank = uns_rank(source->rank);
	f.tensor = key;
	UNS_TRY(mark_unread(m, key));
	return uns_rank_findings_add(&m->findings, &f);
}

int uns_rank_merge_add(struct uns_rank_merge *m, struct uns_rank_source *source,
		       const struct uns_tensor *like, const struct uns_value *v,
		       struct uns_err *err)
{
	struct uns_rank_view view = { .tensor = *like };
	struct uns_merged *known = uns_map_get(&m->by_key, like->key);
	struct uns_err why = { .keep = &m->scratch };
	int code = uns_rank_view_open(m->cat, &m->scratch, source, v, &view, &why);

	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (code < 0 && known && !same_mesh(known, &view))
		return mark_unread(m, like->key) < 0 ? uns_oom(err)
						     : tell_mesh(m, source, &view, known);
	if (code < 0)
		return tell_unread(m, source, like->key, &why) < 0 ? uns_oom(err) : 0;
	view.tensor.group = view.tensor.position = -1;
	view.tensor.alias_of = UNS_NONE;
	note_writer(m, source, &view);
	if (known)
		UNS_TRY(merge_into(m, source, &view, known));
	else
		UNS_TRY(merge_new(m, source, &view, err));
	known = known ? known : m->last;
	known->in_file[source->index] = true;
	return 0;
}

int uns_rank_merge_add_unknown(struct uns_rank_merge *m, struct uns_rank_source *source,
			       const char *key, const char *cls, struct uns_err *err)
{
	struct uns_err why = { 0 };

	uns_fail(&why, uns_map_get(&m->by_key, key) ? -EBADMSG : -ENOTSUP,
		 "it is not a tensor of a kind that unshard knows, but %s", cls);
	return tell_unread(m, source, key, &why) < 0 ? uns_oom(err) : 0;
}

/* -- into the catalog -- */

static bool same_piece(const struct uns_piece *a, const struct uns_piece *b)
{
	size_t n = a->box->n * sizeof(a->box->lo[0]);

	return a->file == b->file && a->offset_bytes == b->offset_bytes &&
	       a->length_bytes == b->length_bytes && uns_box_equal(a->box, b->box) &&
	       !a->stride_elems == !b->stride_elems &&
	       (!a->stride_elems || memcmp(a->stride_elems, b->stride_elems, n) == 0);
}

/* In every file that holds parts of both, in order of files. */
static bool same_bytes(const struct uns_merged *a, const struct uns_merged *b)
{
	const struct uns_rank_part *p = a->first, *q = b->first;
	bool any = false;

	if (a->tensor.dtype != b->tensor.dtype ||
	    !uns_shape_equal(&a->tensor.shape, &b->tensor.shape))
		return false;
	while (p && q) {
		if (p->piece.file < q->piece.file) {
			p = p->next;
			continue;
		}
		if (p->piece.file > q->piece.file) {
			q = q->next;
			continue;
		}
		if (!same_piece(&p->piece, &q->piece))
			return false;
		any = true;
		p = p->next;
		q = q->next;
	}
	return any;
}

/* Tied weights are saved as one storage with two names. */
static int find_alias(struct uns_rank_merge *m, struct uns_map *by_storage, struct uns_merged *t,
		      struct uns_err *err)
{
	const struct uns_merged *other;
	char *storage;

	if (!t->first || t->tensor.role != UNS_ROLE_WEIGHT)
		return 0;
	storage = uns_arena_printf(&m->scratch, "%u %llu", t->first->piece.file,
				 (unsigned long long)t->first->piece.offset_bytes);
	if (!storage)
		return uns_oom(err);
	other = uns_map_get(by_storage, storage);
	if (other && same_bytes(other, t))
		t->tensor.alias_of = other->index;
	else if (!other && !uns_map_put(by_storage, storage, t, NULL))
		return uns_oom(err);
	return 0;
}

static int emit_tensor(struct uns_rank_merge *m, struct uns_merged *t, struct uns_err *err)
{
	const struct uns_rank_part *part;

	UNS_TRY(uns_catalog_add_tensor(m->cat, &t->tensor, &t->index, err));
	for (part = t->first; part; part = part->next)
		UNS_TRY(uns_catalog_add_piece(m->cat, &part->piece, err));
	return 0;
}

int uns_rank_merge_emit(struct uns_rank_merge *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_storage = UNS_MAP_INIT;
	struct uns_merged *t;

	for (t = m->first; t; t = t->next) {
		UNS_TRY(find_alias(m, &by_storage, t, err));
		UNS_TRY(emit_tensor(m, t, err));
	}
	UNS_TRY(uns_rank_judge(m, err));
	return uns_rank_findings_emit(&m->findings, err);
}

/* -- parameters -- */

static bool same_content(const struct uns_merged *a, const struct uns_merged *b)
{
	const struct uns_rank_part *p = a->first, *q = b->first;

	if (a->tensor.dtype != b->tensor.dtype ||
	    !uns_shape_equal(&a->tensor.shape, &b->tensor.shape))
		return false;
	for (; p && q; p = p->next, q = q->next)
		if (!p->piece.crc32 || p->piece.crc32 != q->piece.crc32 ||
		    !uns_box_equal(p->piece.box, q->piece.box))
			return false;
	return !p && !q;
}

/* Vectors are left out: many are all zeros or ones. */
static int find_twin(struct uns_rank_merge *m, struct uns_map *by_crc, struct uns_merged *t,
		     bool *is_twin)
{
	const struct uns_merged *other;
	char *key;

	*is_twin = false;
	if (!t->first || t->tensor.shape.n < 2)
		return 0;
	key = uns_arena_printf(&m->scratch, "%u", t->first->piece.crc32);
	if (!key)
		return -ENOMEM;
	other = uns_map_get(by_crc, key);
	*is_twin = other && same_content(other, t);
	return other || uns_map_put(by_crc, key, t, NULL) ? 0 : -ENOMEM;
}

static bool is_param(const struct uns_rank_merge *m, const struct uns_merged *t)
{
	return uns_dtype_info(t->tensor.dtype)->is_float && (t->sharded || !m->n_sharded) &&
	       t->tensor.alias_of == UNS_NONE;
}

int uns_rank_merge_each_param(struct uns_rank_merge *m,
			      int (*visit)(void *ctx, const struct uns_tensor *t, bool twin),
			      void *ctx)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_crc = UNS_MAP_INIT;
	struct uns_merged *t;
	bool is_twin;

	for (t = m->first; t; t = t->next) {
		if (!is_param(m, t))
			continue;
		UNS_TRY(find_twin(m, &by_crc, t, &is_twin));
		UNS_TRY(visit(ctx, &t->tensor, is_twin));
	}
	return 0;
}
