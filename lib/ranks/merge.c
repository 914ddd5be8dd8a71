/* Merges the ranks' views of a tensor. All must have the same dtype and global shape: otherwise a finding names two
 * files that differ. Plain tensors of several ranks are copies of each other if their shapes are equal, and their CRCs
 * where the files record them. */
#include "ranks/merge.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/number.h"
#include "ranks/merged.h"

int uns_rank_merge_init(struct uns_rank_merge *m, struct uns_catalog *cat, enum uns_scope scope, size_t n_files,
			struct uns_err *err)
{
	size_t i;

	*m = (struct uns_rank_merge){ .cat = cat, .scope = scope, .n_files = n_files };
	uns_rank_findings_init(&m->findings, cat);
	UNS_TRY_ALLOC(m->file = UNS_NEW_N(&m->scratch, struct uns_rank_read, n_files), err);
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

/* -- merging -- */

static void append_parts(struct uns_merged *t, struct uns_rank_part *first)
{
	if (t->last)
		t->last->next = first;
	else
		t->first = first;
	for (; first; first = first->next)
		t->last = first;
}

/* The strings that came with the tensor live only as long as its file is open. */
static int merge_new(struct uns_rank_merge *m, const struct uns_rank_source *source, const struct uns_rank_view *view,
		     struct uns_err *err)
{
	struct uns_merged *t = UNS_NEW(&m->scratch, struct uns_merged);
	struct uns_arena *arena = &m->cat->arena;

	UNS_TRY_ALLOC(t, err);
	t->tensor = view->tensor;
	t->tensor.key = uns_arena_str(arena, t->tensor.key);
	t->tensor.name = uns_arena_str(arena, t->tensor.name);
	if (t->tensor.state)
		t->tensor.state = uns_arena_str(arena, t->tensor.state);
	UNS_TRY_ALLOC(t->in_file = UNS_NEW_N(&m->scratch, bool, m->n_files), err);
	UNS_TRY_ALLOC(uns_map_put(&m->by_key, t->tensor.key, t, NULL), err);
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
	       (t->n_mesh == view->n_mesh && memcmp(t->mesh, view->mesh, t->n_mesh * sizeof(*t->mesh)) == 0);
}

/* What findings about a tensor in one of the files begin with. */
#define OF_FILE(m, what, source) \
	.id = (what), .scope = (m)->scope, .file = (source)->path, .rank = uns_rank((source)->rank)

static int report_mesh(struct uns_rank_merge *m, const struct uns_rank_source *source, const struct uns_rank_view *view,
		       const struct uns_merged *t)
{
	struct uns_shape there = { .n = (uint32_t)view->n_mesh }, here = { .n = (uint32_t)t->n_mesh };
	char x[128], y[128];

	memcpy(there.dim, view->mesh, view->n_mesh * sizeof(*view->mesh));
	memcpy(here.dim, t->mesh, t->n_mesh * sizeof(*t->mesh));
	return uns_rank_findings_add(&m->findings, UNS_FINDING(OF_FILE(m, UNS_FOUND_RANK_MESHES_DIFFER, source),
							       .tensor = t->tensor.key,
							       .found = uns_str(uns_shape_text(&there, x, sizeof(x))),
							       .expected = uns_str(uns_shape_text(&here, y, sizeof(y))),
							       .arg = { { "other_file", uns_str(t->path) } }));
}

static int report_other(struct uns_rank_merge *m, const struct uns_rank_source *source, enum uns_finding_id id,
			const struct uns_merged *t, const char *found, const char *expected)
{
	return uns_rank_findings_add(&m->findings, UNS_FINDING(OF_FILE(m, id, source), .tensor = t->tensor.key,
							       .found = uns_str(found), .expected = uns_str(expected),
							       .arg = { { "other_file", uns_str(t->path) } }));
}

/* Returns 0 if the view agrees with other ranks', 1 if it does not, after reporting it. */
static int report_unlike(struct uns_rank_merge *m, const struct uns_rank_source *source,
			 const struct uns_rank_view *view, const struct uns_merged *t)
{
	const struct uns_tensor *a = &t->tensor, *b = &view->tensor;
	char x[128], y[128];
	int code = 0;

	if (a->dtype != b->dtype) {
		code = report_other(m, source, UNS_FOUND_RANK_TYPES_DIFFER, t, uns_dtype_info(b->dtype)->torch,
				    uns_dtype_info(a->dtype)->torch);
	} else if (!uns_shape_equal(&a->shape, &b->shape) || t->sharded != view->sharded) {
		code = uns_rank_findings_add(
			&m->findings,
			UNS_FINDING(OF_FILE(m, UNS_FOUND_RANK_SHAPES_DIFFER, source), .tensor = a->key,
				    .found = uns_str(uns_shape_text(&b->shape, x, sizeof(x))),
				    .expected = uns_str(uns_shape_text(&a->shape, y, sizeof(y))),
				    .arg = { { "found_kind", uns_str(view->sharded ? "sharded" : "plain") },
					     { "expected_kind", uns_str(t->sharded ? "sharded" : "plain") },
					     { "other_file", uns_str(t->path) } }));
	} else if (!same_mesh(t, view)) {
		code = report_mesh(m, source, view, t);
	} else if (a->role == UNS_ROLE_STEP && t->has_value && view->has_value && t->value != view->value) {
		code = report_other(m, source, UNS_FOUND_RANK_STEPS_DIFFER, t, uns_number_print(x, view->value, 15),
				    uns_number_print(y, t->value, 15));
	} else {
		return 0;
	}
	return code < 0 ? code : 1;
}

/* Pieces are placed by the rank in the content. A trainer that resumes goes by the file's name, so both are compared.
 */
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

static int report_unread(struct uns_rank_merge *m, const struct uns_rank_source *source, const char *key,
			 const struct uns_err *why)
{
	struct uns_finding f = uns_finding_of_err(why, m->scope);

	if (!why->finding)
		f.id = f.code == -ENOTSUP ? UNS_FOUND_RANK_TENSOR_UNKNOWN : UNS_FOUND_RANK_TENSOR_DAMAGED;
	f.file = source->path;
	f.rank = uns_rank(source->rank);
	f.tensor = key;
	if (!uns_map_put(&m->unread, uns_arena_str(&m->scratch, key), m, NULL))
		return -ENOMEM;
	return uns_rank_findings_add(&m->findings, &f);
}

int uns_rank_merge_add(struct uns_rank_merge *m, struct uns_rank_source *source, const struct uns_tensor *like,
		       const struct uns_value *v, struct uns_err *err)
{
	struct uns_rank_view view = { .tensor = *like };
	struct uns_merged *t = uns_map_get(&m->by_key, like->key);
	struct uns_err why = { .keep = &m->scratch };
	int unlike, code = uns_rank_view_open(m->cat, &m->scratch, source, v, &view, &why);

	if (code < 0 && !uns_code_is_finding(code))
		return uns_fail_copy(err, &why);
	if (code < 0 && t && !same_mesh(t, &view)) {
		UNS_TRY_ALLOC(uns_map_put(&m->unread, uns_arena_str(&m->scratch, like->key), m, NULL), err);
		return report_mesh(m, source, &view, t);
	}
	if (code < 0)
		return report_unread(m, source, like->key, &why) < 0 ? uns_oom(err) : 0;
	view.tensor.group = view.tensor.position = -1;
	view.tensor.alias_of = UNS_NONE;
	note_writer(m, source, &view);
	if (t) {
		unlike = report_unlike(m, source, &view, t);
		if (unlike < 0)
			return unlike;
		t->told |= unlike;
		if (!unlike && !t->differs && t->crc && view.crc && t->crc != view.crc)
			t->differs = source->path;
		if (!unlike)
			append_parts(t, view.first);
	} else {
		UNS_TRY(merge_new(m, source, &view, err));
		t = m->last;
	}
	t->in_file[source->index] = true;
	return 0;
}

int uns_rank_merge_add_unknown(struct uns_rank_merge *m, struct uns_rank_source *source, const char *key,
			       const char *cls, struct uns_err *err)
{
	struct uns_err why = { 0 };

	uns_fail(&why, uns_map_get(&m->by_key, key) ? -EBADMSG : -ENOTSUP,
		 "it is not a tensor of a kind that unshard knows, but %s", cls);
	return report_unread(m, source, key, &why) < 0 ? uns_oom(err) : 0;
}

/* -- into the catalog -- */

static bool same_piece(const struct uns_piece *a, const struct uns_piece *b)
{
	size_t n = a->box->n * sizeof(a->box->lo[0]);

	return a->file == b->file && a->offset_bytes == b->offset_bytes && a->length_bytes == b->length_bytes &&
	       uns_box_equal(a->box, b->box) && !a->stride_elems == !b->stride_elems &&
	       (!a->stride_elems || memcmp(a->stride_elems, b->stride_elems, n) == 0);
}

/* In every file that holds parts of both, in order of files. */
static bool same_bytes(const struct uns_merged *a, const struct uns_merged *b)
{
	const struct uns_rank_part *p = a->first, *q = b->first;
	bool any = false;

	if (a->tensor.dtype != b->tensor.dtype || !uns_shape_equal(&a->tensor.shape, &b->tensor.shape))
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
static int find_alias(struct uns_rank_merge *m, struct uns_map *by_storage, struct uns_merged *t, struct uns_err *err)
{
	const struct uns_merged *other;
	char *storage;

	if (!t->first || t->tensor.role != UNS_ROLE_WEIGHT)
		return 0;
	UNS_TRY_ALLOC(storage = uns_arena_printf(&m->scratch, "%u %llu", t->first->piece.file,
						 (unsigned long long)t->first->piece.offset_bytes),
		      err);
	other = uns_map_get(by_storage, storage);
	if (other && same_bytes(other, t))
		t->tensor.alias_of = other->index;
	else if (!other && !uns_map_put(by_storage, storage, t, NULL))
		return uns_oom(err);
	return 0;
}

int uns_rank_merge_emit(struct uns_rank_merge *m, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_storage = UNS_MAP_INIT;
	const struct uns_rank_part *part;
	struct uns_merged *t;

	for (t = m->first; t; t = t->next) {
		UNS_TRY(find_alias(m, &by_storage, t, err));
		UNS_TRY(uns_catalog_add_tensor(m->cat, &t->tensor, &t->index, err));
		for (part = t->first; part; part = part->next)
			UNS_TRY(uns_catalog_add_piece(m->cat, &part->piece, err));
	}
	UNS_TRY(uns_rank_judge(m, err));
	return uns_rank_findings_emit(&m->findings, err);
}

/* -- parameters -- */

/* Is the tensor a matrix with the bytes of an earlier one (by CRC)? Vectors are left out: many are all zeros or ones.
 */
static int find_twin(struct uns_rank_merge *m, struct uns_map *by_crc, struct uns_merged *t, bool *is_twin,
		     struct uns_err *err)
{
	const struct uns_rank_part *p, *q = t->first;
	const struct uns_merged *other;
	char *key;

	*is_twin = false;
	if (!t->first || t->tensor.shape.n < 2)
		return 0;
	key = uns_arena_printf(&m->scratch, "%u", t->first->piece.crc32);
	other = uns_map_get(by_crc, key);
	if (!other)
		return uns_map_put(by_crc, key, t, NULL) ? 0 : uns_oom(err);
	if (other->tensor.dtype != t->tensor.dtype || !uns_shape_equal(&other->tensor.shape, &t->tensor.shape))
		return 0;
	for (p = other->first; p && q; p = p->next, q = q->next)
		if (!p->piece.crc32 || p->piece.crc32 != q->piece.crc32 || !uns_box_equal(p->piece.box, q->piece.box))
			return 0;
	*is_twin = !p && !q;
	return 0;
}

int uns_rank_merge_params(struct uns_rank_merge *m, struct uns_rank_params *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map by_crc = UNS_MAP_INIT;
	struct uns_rank_param *v;
	struct uns_merged *t;
	size_t n = 0;

	for (t = m->first; t; t = t->next)
		n++;
	UNS_TRY_ALLOC(v = UNS_NEW_N(&m->cat->arena, struct uns_rank_param, n), err);
	*out = (struct uns_rank_params){ .v = v, .mesh_size = m->mesh_size, .n_renamed = uns_rank_merge_renamed(m) };
	for (t = m->first; t; t = t->next) {
		if (!uns_dtype_info(t->tensor.dtype)->is_float || (!t->sharded && m->n_sharded) ||
		    t->tensor.alias_of != UNS_NONE)
			continue;
		v[out->n].name = t->tensor.name;
		v[out->n].shape = t->tensor.shape;
		UNS_TRY(find_twin(m, &by_crc, t, &v[out->n].twin, err));
		out->n_twins += v[out->n++].twin;
	}
	return 0;
}
