/* How the proof goes. First every piece's bytes must exist: the file is there and long enough. Replicas are dropped;
 * they follow each other, because pieces are sorted (uns_catalog_seal). Then:
 *
 *    ranges   if each piece is one range of flat elements: in order of position each must begin where the
 *             one before ended
 *    boxes    otherwise no two may overlap, which a sweep along one dimension checks, and their sizes must
 *             add up to the tensor's: disjoint boxes inside the shape that do so leave no hole
 *
 * If not, the finding names the first hole or overlap and what is missing. Reads no data; knows no formats. */
#include "model/cover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "model/sum_tensor.h"

/* Limits for hostile lists of boxes: pairs that are compared, and steps in search of a hole. */
enum { MAX_COMPARISONS = 1 << 28, MAX_HOLE_STEPS = 1 << 20 };

/* -- pieces and stretches -- */

struct uns_stretches uns_stretches_of_piece(const struct uns_shape *shape, const struct uns_piece *piece)
{
	if (piece->kind == UNS_PIECE_BOX)
		return uns_stretches_of_box(piece->box, shape);
	return (struct uns_stretches){ .n = piece->range.count > 0,
				       .stretch_elems = piece->range.count,
				       .base = piece->range.first };
}

bool uns_piece_range(const struct uns_shape *shape, const struct uns_piece *piece, struct uns_range *out)
{
	if (piece->kind == UNS_PIECE_BOX)
		return uns_box_stretch(piece->box, shape, &out->first, &out->count);
	*out = piece->range;
	return true;
}

bool uns_same_elements(const struct uns_piece *a, const struct uns_piece *b)
{
	uint32_t d;

	if (a->kind != b->kind)
		return false;
	if (a->kind == UNS_PIECE_RANGE)
		return a->range.first == b->range.first && a->range.count == b->range.count;
	for (d = 0; d < a->box->n; d++)
		if (a->box->lo[d] != b->box->lo[d] || a->box->len[d] != b->box->len[d])
			return false;
	return true;
}

struct cover {
	const struct uns_catalog *cat;
	const struct uns_tensor *t;
	const struct uns_piece **piece; /* distinct and not empty, in order of position */
	size_t n;
};

static void cover_fini(struct cover *c)
{
	free(c->piece);
}

/* -- the bytes exist -- */

static enum uns_scope scope_of(const struct uns_tensor *t)
{
	if (uns_role_is_model(t->role))
		return UNS_SCOPE_WEIGHTS;
	return uns_role_is_optimizer(t->role) ? UNS_SCOPE_OPTIMIZER : UNS_SCOPE_NOTE;
}

/* What every finding here begins with. */
#define OF_TENSOR(c, what) .id = (what), .scope = scope_of((c)->t), .checkpoint = (c)->cat->path, .tensor = (c)->t->key

static int bytes_check(const struct cover *c, const struct uns_piece *piece, struct uns_err *err)
{
	const struct uns_file *file = &c->cat->files[piece->file];
	uint64_t end = piece->offset_bytes + piece->length_bytes;
	enum uns_finding_id what = UNS_FOUND_SHARD_CUT;
	char shape[128];
	bool cut;

	if (file->missing)
		what = UNS_FOUND_SHARD_MISSING;
	else if (file->stat.kind != UNS_KIND_FILE)
		what = UNS_FOUND_SHARD_IS_NO_FILE;
	else if (end <= file->stat.id.size)
		return 0;
	cut = what == UNS_FOUND_SHARD_CUT;
	return uns_fail_with(
		err, UNS_FINDING(OF_TENSOR(c, what), .file = file->path, .rank = uns_rank(piece->rank),
				 .expected = cut ? uns_num(end) : uns_str(NULL),
				 .found = cut ? uns_num(file->stat.id.size) : uns_str(NULL),
				 .arg = { { "shape", uns_str(uns_shape_text(&c->t->shape, shape, sizeof(shape))) } }));
}

/* Its pieces that would be read: of replicas the first. known: of each file, that it was reported. */
static int tensor_files(const struct cover *c, bool *known, struct uns_findings *out, struct uns_arena *arena,
			struct uns_err *err)
{
	const struct uns_piece *p = uns_tensor_pieces(c->cat, c->t), *end = p + c->t->n_pieces, *used = NULL;
	struct uns_err why = { .keep = arena };

	for (; p < end; p++) {
		if (!uns_piece_elems(p) || (used && uns_same_elements(used, p)))
			continue;
		used = p;
		if (known[p->file] || bytes_check(c, p, &why) == 0)
			continue;
		if (!why.finding)
			return uns_oom(err);
		known[p->file] = true;
		UNS_TRY(uns_findings_add(out, arena, why.finding, err));
		why = (struct uns_err){ .keep = arena };
	}
	return 0;
}

int uns_cover_files(const struct uns_catalog *cat, struct uns_findings *out, struct uns_arena *arena,
		    struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) bool *known = calloc(cat->n_files + 1, sizeof(*known));
	struct cover c = { .cat = cat };
	size_t i;

	UNS_TRY_ALLOC(known, err);
	for (i = 0; i < cat->n_tensors; i++) {
		c.t = &cat->tensors[i];
		if (scope_of(c.t) != UNS_SCOPE_NOTE)
			UNS_TRY(tensor_files(&c, known, out, arena, err));
	}
	return 0;
}

/* -- the pieces that exist -- */

/* Picks the pieces that will be read: of replicas, which follow each other, the first. Replicas must be as long as it,
 * but for compressed items and torch.save files, which have another length than their content. */
static int choose_pieces(struct cover *c, struct uns_err *err)
{
	const struct uns_piece *p = uns_tensor_pieces(c->cat, c->t), *end = p + c->t->n_pieces, *used;
	const struct uns_file *files = c->cat->files;

	UNS_TRY_ALLOC(c->piece = calloc(c->t->n_pieces ? c->t->n_pieces : 1, sizeof(*c->piece)), err);
	for (; p < end; p++) {
		if (!uns_piece_elems(p))
			continue;
		used = c->n ? c->piece[c->n - 1] : NULL;
		if (!used || !uns_same_elements(used, p)) {
			UNS_TRY(bytes_check(c, p, err));
			c->piece[c->n++] = p;
		} else if (used->container == UNS_RAW && p->container == UNS_RAW && !used->codec && !p->codec &&
			   !used->stride_elems && !p->stride_elems && used->length_bytes != p->length_bytes) {
			return uns_fail_with(err,
					     UNS_FINDING(OF_TENSOR(c, UNS_FOUND_COPIES_DIFFER_IN_LENGTH),
							 .file = files[p->file].path, .rank = uns_rank(p->rank),
							 .expected = uns_num(used->length_bytes),
							 .found = uns_num(p->length_bytes),
							 .arg = { { "other_file", uns_str(files[used->file].path) } }));
		}
	}
	return 0;
}

static int rank_cmp(const void *a, const void *b)
{
	const int32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* "0, 1, 4 to 7": the ranks whose pieces exist. Returns their number. */
static size_t ranks_there(const struct cover *c, struct uns_text *out)
{
	UNS_CLEANUP(uns_free_p) int32_t *rank = calloc(c->n + 1, sizeof(*rank));
	size_t i, n = 0, first = 0;

	for (i = 0; rank && i < c->n; i++)
		if (c->piece[i]->rank >= 0)
			rank[n++] = c->piece[i]->rank;
	if (!n)
		return 0;
	qsort(rank, n, sizeof(*rank), rank_cmp);
	for (i = 1; i <= n; i++) {
		if (i < n && rank[i] <= rank[i - 1] + 1)
			continue;
		uns_text_printf(out, "%s%d", out->len ? ", " : "", rank[first]);
		if (rank[i - 1] != rank[first])
			uns_text_printf(out, rank[i - 1] == rank[first] + 1 ? ", %d" : " to %d", rank[i - 1]);
		first = i;
	}
	return rank[0] == rank[n - 1] ? 1 : n;
}

/* Returns how many files are missing in the directory of the tensor's shards, and the first of them. */
static size_t files_missing(const struct cover *c, const char **first)
{
	const char *shard = c->n ? c->cat->files[c->piece[0]->file].path : NULL;
	const struct uns_file *f = c->cat->files, *end = f + c->cat->n_files;
	size_t n = 0, dir;

	for (; shard && f < end; f++) {
		dir = (size_t)(uns_path_name(f->path) - f->path);
		if (f->missing && uns_path_name(shard) == shard + dir && !strncmp(f->path, shard, dir) && n++ == 0)
			*first = f->path;
	}
	return n;
}

/* -- holes and overlaps -- */

/* Elements of a row, which is one index of the first dimension: holes are named in rows where that is exact. */
static uint64_t row_elems(const struct uns_shape *shape)
{
	return shape->n && shape->dim[0] ? uns_shape_elems(shape) / shape->dim[0] : 1;
}

static int fail_hole(const struct cover *c, uint64_t first, uint64_t end, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text ranks = UNS_TEXT_INIT;
	uint64_t row = row_elems(&c->t->shape), last = end - 1;
	bool rows = c->t->shape.n > 0 && first % row == 0 && end % row == 0;
	const char *missing = NULL;
	size_t n_ranks = ranks_there(c, &ranks), n_missing = files_missing(c, &missing);

	if (ranks.failed)
		return uns_oom(err);
	row = rows ? row : 1;
	first /= row;
	last /= row;
	return uns_fail_with(err,
			     UNS_FINDING(OF_TENSOR(c, UNS_FOUND_TENSOR_HAS_A_HOLE), .file = missing,
					 .code = c->n ? -EBADMSG : -ENODATA,
					 .arg = { { "unit", uns_str(rows && c->t->shape.n > 1 ? "row" : "element") },
						  { "first", uns_num(first) },
						  { "last", last > first ? uns_num(last) : uns_str(NULL) },
						  { "total", uns_num(uns_shape_elems(&c->t->shape) / row) },
						  { "n_ranks", uns_more(n_ranks) },
						  { "ranks", uns_str(ranks.p) },
						  { "more", uns_more(n_missing ? n_missing - 1 : 0) } }));
}

static int fail_overlap(const struct cover *c, const struct uns_piece *a, const struct uns_piece *b,
			struct uns_err *err)
{
	uint64_t row = row_elems(&c->t->shape);
	const struct uns_piece *later = uns_piece_first(&c->t->shape, a) > uns_piece_first(&c->t->shape, b) ? a : b;

	return uns_fail_with(err, UNS_FINDING(OF_TENSOR(c, UNS_FOUND_SHARDS_OVERLAP),
					      .file = c->cat->files[a->file].path, .rank = uns_rank(a->rank),
					      .arg = { { "unit", uns_str(c->t->shape.n > 1 ? "row" : "element") },
						       { "first", uns_num(uns_piece_first(&c->t->shape, later) / row) },
						       { "other_file", uns_str(c->cat->files[b->file].path) } }));
}

static bool all_ranges(const struct cover *c, bool *any_range)
{
	struct uns_range unused;
	bool all = true;
	size_t i;

	*any_range = false;
	for (i = 0; i < c->n; i++) {
		*any_range |= c->piece[i]->kind == UNS_PIECE_RANGE;
		all = all && uns_piece_range(&c->t->shape, c->piece[i], &unused);
	}
	return all;
}

static int check_ranges(const struct cover *c, struct uns_err *err)
{
	uint64_t at = 0, total = uns_shape_elems(&c->t->shape);
	struct uns_range range;
	size_t i;

	for (i = 0; i < c->n; i++) {
		uns_piece_range(&c->t->shape, c->piece[i], &range);
		if (range.first < at)
			return fail_overlap(c, c->piece[i - 1], c->piece[i], err);
		if (range.first > at)
			return fail_hole(c, at, range.first, err);
		at = range.first + range.count;
	}
	return at == total ? 0 : fail_hole(c, at, total, err);
}

/* The end of the stretch that holds flat element `at`; `at` itself when no box holds it. */
static uint64_t covered_until(const struct cover *c, uint64_t at)
{
	struct uns_stretches stretches;
	uint64_t k;
	size_t i;

	for (i = 0; i < c->n; i++) {
		stretches = uns_stretches_of_box(c->piece[i]->box, &c->t->shape);
		k = uns_stretches_find(&stretches, at);
		if (k < stretches.n && uns_stretches_at(&stretches, k) <= at)
			return uns_stretches_at(&stretches, k) + stretches.stretch_elems;
	}
	return at;
}

/* The first element behind `at` that some box holds. */
static uint64_t hole_until(const struct cover *c, uint64_t at)
{
	uint64_t end = uns_shape_elems(&c->t->shape), k;
	struct uns_stretches stretches;
	size_t i;

	for (i = 0; i < c->n; i++) {
		stretches = uns_stretches_of_box(c->piece[i]->box, &c->t->shape);
		k = uns_stretches_find(&stretches, at);
		if (k < stretches.n)
			end = uns_u64_min(end, uns_stretches_at(&stretches, k));
	}
	return end;
}

static int fail_box_hole(const struct cover *c, struct uns_err *err)
{
	uint64_t at = 0, next;
	char shape[128];
	size_t steps;

	for (steps = 0; steps < MAX_HOLE_STEPS / (c->n + 1) + 1; steps++) {
		next = covered_until(c, at);
		if (next == at)
			return fail_hole(c, at, hole_until(c, at), err);
		at = next;
	}
	return uns_fail_with(
		err, UNS_FINDING(OF_TENSOR(c, UNS_FOUND_TENSOR_HAS_A_HOLE_BEHIND),
				 .arg = { { "shape", uns_str(uns_shape_text(&c->t->shape, shape, sizeof(shape))) },
					  { "first", uns_num(at) },
					  { "total", uns_num(uns_shape_elems(&c->t->shape)) } }));
}

/* The dimension to sweep along: the one in which boxes are shortest, so that few of them overlap in it. */
static uint32_t sweep_dim(const struct cover *c)
{
	uint32_t d, best = 0;
	uint64_t sum, least = UINT64_MAX;
	size_t i;

	for (d = 0; d < c->t->shape.n; d++) {
		for (sum = 0, i = 0; i < c->n; i++)
			sum += (uint64_t)(65536.0 * (double)c->piece[i]->box->len[d] / (double)c->t->shape.dim[d]);
		if (sum < least) {
			least = sum;
			best = d;
		}
	}
	return best;
}

struct swept {
	uint64_t lo, end; /* along the sweep dimension */
	const struct uns_piece *piece;
};

static int swept_cmp(const void *a, const void *b)
{
	const struct swept *x = a, *y = b;

	if (x->lo != y->lo)
		return x->lo < y->lo ? -1 : 1;
	return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* No two boxes may share an element. Boxes are visited in the order in which they begin along the
 * sweep's dimension, and compared with those that have not ended yet (`open`). */
static int check_disjoint(const struct cover *c, struct swept *sorted, struct swept *open, struct uns_err *err)
{
	uint64_t compared = 0;
	size_t i, k, kept, n_open = 0;

	for (i = 0; i < c->n; i++) {
		for (kept = 0, k = 0; k < n_open; k++) {
			if (open[k].end <= sorted[i].lo)
				continue;
			if (++compared > MAX_COMPARISONS)
				return uns_fail_with(err, UNS_FINDING(OF_TENSOR(c, UNS_FOUND_SHARDS_INTERLEAVE),
								      .arg = { { "n", uns_num(c->n) } }));
			if (uns_box_overlap(open[k].piece->box, sorted[i].piece->box))
				return fail_overlap(c, open[k].piece, sorted[i].piece, err);
			open[kept++] = open[k];
		}
		open[kept++] = sorted[i];
		n_open = kept;
	}
	return 0;
}

/* Boxes that are inside the shape and disjoint cover it exactly when their sizes add up. */
static int check_boxes(const struct cover *c, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) struct swept *sorted = calloc(c->n * 2 + 1, sizeof(*sorted));
	uint32_t dim = sweep_dim(c);
	uint64_t sum = 0;
	size_t i;

	UNS_TRY_ALLOC(sorted, err);
	for (i = 0; i < c->n; i++) {
		const struct uns_box *box = c->piece[i]->box;

		sorted[i] = (struct swept){ box->lo[dim], box->lo[dim] + box->len[dim], c->piece[i] };
	}
	qsort(sorted, c->n, sizeof(*sorted), swept_cmp);
	UNS_TRY(check_disjoint(c, sorted, sorted + c->n, err));
	for (i = 0; i < c->n; i++) /* disjoint and inside: the sum cannot overflow */
		sum += uns_box_elems(c->piece[i]->box);
	return sum == uns_shape_elems(&c->t->shape) ? 0 : fail_box_hole(c, err);
}

static int check_stored(const struct uns_catalog *cat, const struct uns_tensor *tensor, struct uns_err *err)
{
	UNS_CLEANUP(cover_fini) struct cover c = { .cat = cat, .t = tensor };
	bool any_range;

	if (!uns_shape_elems(&tensor->shape) || uns_catalog_is_proven(cat, tensor))
		return 0;
	UNS_TRY(choose_pieces(&c, err));
	if (all_ranges(&c, &any_range))
		return check_ranges(&c, err);
	if (any_range)
		return uns_fail_with(err, UNS_FINDING(OF_TENSOR(&c, UNS_FOUND_SHARDS_OF_TWO_KINDS)));
	return check_boxes(&c, err);
}

bool uns_cover_is_plain(const struct uns_catalog *cat, const struct uns_tensor *tensor)
{
	const struct uns_piece *piece = cat->pieces + tensor->first_piece;
	uint64_t first, before = 0;
	size_t i;

	if (!tensor->n_pieces || uns_shape_check(&tensor->shape, tensor->dtype, NULL) < 0)
		return false;
	for (i = 0; i < tensor->n_pieces; i++) {
		if (uns_piece_check(&tensor->shape, tensor->dtype, &piece[i], NULL) < 0 || !uns_piece_elems(&piece[i]))
			return false;
		first = uns_piece_first(&tensor->shape, &piece[i]);
		if (i && first <= before)
			return false;
		before = first;
	}
	return check_stored(cat, tensor, NULL) == 0;
}

int uns_cover_check(const struct uns_catalog *cat, const struct uns_tensor *tensor, struct uns_err *err)
{
	size_t i;

	if (tensor->alias_of != UNS_NONE)
		tensor = &cat->tensors[tensor->alias_of];
	if (tensor->of)
		tensor = tensor->of;
	if (!tensor->sum)
		return check_stored(cat, tensor, err);
	for (i = 0; i < tensor->sum->n; i++)
		UNS_TRY(check_stored(cat, tensor->sum->term[i].left.tensor, err));
	return 0;
}

int uns_cover_refusal(const struct uns_catalog *cat, enum uns_scope scope, struct uns_err *why)
{
	const struct uns_finding *f = cat->findings, *end = f + cat->n_findings;

	for (; f < end; f++)
		if (f->scope == scope || f->scope == UNS_SCOPE_ALL)
			return uns_fail_with(why, f);
	return 0;
}

int uns_cover_weights(const struct uns_catalog *cat, struct uns_err *why)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;
	size_t n = 0;

	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_WEIGHTS, why));
	for (; t < end; t++) {
		if (!uns_role_is_model(t->role))
			continue;
		UNS_TRY(uns_cover_check(cat, t, why));
		n++;
	}
	if (n)
		return 0;
	return UNS_FAIL_WITH(why, NO_WEIGHTS, .scope = UNS_SCOPE_WEIGHTS, .checkpoint = cat->path);
}
