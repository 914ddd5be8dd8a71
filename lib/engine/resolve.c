/* Reads, checks and remembers the headers of items. Two threads that need the same header may both read it; the first
 * one that has read it keeps the result. Look-ahead passes over pieces that another thread has claimed or finished. */
#include "engine/resolve.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/backing.h"
#include "engine/edges.h"
#include "engine/engine.h"
#include "engine/places.h"
#include "engine/source_read.h"

/* Items whose headers are read together: each needs two reads, by a thread of the pool. No further ahead of a segment
 * than its reader soon gets: far-off reads of a shard make clients of networks fetch blocks that are not wanted yet. */
enum { AHEAD_PIECES = 32, AHEAD_SEGMENTS = 256, AHEAD_BYTES = 8 << 20 };

/* Of storage that is far: a request is worth more than the bytes. */
enum { AT_ONE_GO_BYTES = 128 << 10, AT_ONE_GO_GAP_BYTES = 16 << 10 };

/* NULL for the piece of a whole file, which is not the catalog's. */
static struct uns_resolved *resolved_of(struct uns_backing *b, const struct uns_piece *piece)
{
	if (piece < b->cat->pieces || piece >= b->cat->pieces + b->cat->n_pieces)
		return NULL;
	return &b->resolved[piece - b->cat->pieces];
}

static unsigned state_of(struct uns_resolved *resolved)
{
	return atomic_load_explicit(&resolved->state, memory_order_acquire);
}

static bool resolved_claim(struct uns_resolved *resolved)
{
	unsigned expected = UNS_RESOLVED_NEW;

	return atomic_compare_exchange_strong(&resolved->state, &expected, UNS_RESOLVED_CLAIMED);
}

bool uns_location_known(struct uns_backing *b, const struct uns_piece *piece, struct uns_location *out)
{
	struct uns_resolved *resolved = resolved_of(b, piece);

	if (!resolved)
		return false;
	if (state_of(resolved) == UNS_RESOLVED_READY) {
		*out = resolved->location;
		return true;
	}
	if (!uns_places_find(b, (size_t)(piece - b->cat->pieces), out))
		return false;
	uns_location_keep(b, piece, out);
	return true;
}

/* The first thread that has found the place keeps it, also where another one has claimed the piece. */
void uns_location_keep(struct uns_backing *b, const struct uns_piece *piece, const struct uns_location *location)
{
	struct uns_resolved *resolved = resolved_of(b, piece);
	unsigned state = resolved ? state_of(resolved) : UNS_RESOLVED_READY;

	do {
		if (state == UNS_RESOLVED_KEEPING || state == UNS_RESOLVED_READY)
			return;
	} while (!atomic_compare_exchange_weak(&resolved->state, &state, UNS_RESOLVED_KEEPING));
	resolved->location = *location;
	atomic_store_explicit(&resolved->state, UNS_RESOLVED_READY, memory_order_release);
}

/* -- one item -- */

static int check_item(const struct uns_tensor *tensor, const struct uns_piece *piece, const struct uns_torch_tensor *t,
		      struct uns_err *err)
{
	const struct uns_item_part *part = uns_piece_part(piece);
	/* What is flat may have been saved in any shape: its elements are taken in C order. */
	const bool flat = part || piece->kind == UNS_PIECE_RANGE;
	struct uns_shape want = { .n = 1, .dim = { part ? part->n_elems : piece->range.count } };
	struct uns_shape found = { .n = (uint32_t)t->n_dims };
	char a[128], b[128];
	bool fits;
	size_t d;

	for (d = 0; d < t->n_dims; d++)
		found.dim[d] = t->dims[d];
	if (!flat)
		want.n = piece->box->n;
	for (d = 0; !flat && d < want.n; d++)
		want.dim[d] = piece->box->len[d];
	fits = flat ? uns_shape_elems(&found) == want.dim[0] : uns_shape_equal(&want, &found);
	if (t->dtype != tensor->dtype)
		return uns_fail(err, -EBADMSG,
				"the metadata records dtype %s, the item has %s; the shard does "
				"not belong to this metadata, or is damaged",
				uns_dtype_info(tensor->dtype)->torch, uns_dtype_info(t->dtype)->torch);
	if (!fits)
		return uns_fail(err, -EBADMSG,
				"the metadata records shape %s, the item has %s; the shard does "
				"not belong to this metadata, or is damaged",
				uns_shape_text(&want, a, sizeof(a)), uns_shape_text(&found, b, sizeof(b)));
	if (part && !t->contiguous)
		return uns_fail(err, -ENOTSUP,
				"the item has its elements in another order than C's, and a part of it is needed");
	return 0;
}

int uns_item_tensor(const struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		    const struct uns_reader *r, struct uns_arena *arena, struct uns_torch_tensor *out,
		    struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[piece->file];
	struct uns_torchfile file;
	char rank[32] = "";
	int code = uns_torchfile_open(r, arena, &file, err);

	if (code == 0)
		code = uns_torch_tensor(&file, file.root, out, err);
	if (code == 0)
		code = check_item(tensor, piece, out, err);

	/* Sentences about the file itself (stale, I/O) name it already. */
	if ((code != -EBADMSG && code != -ENOTSUP) || !err)
		return code;
	if (piece->rank >= 0)
		snprintf(rank, sizeof(rank), " (rank %d)", piece->rank);
	uns_fail_in(err, "%s/%s%s: tensor %s at byte %llu", uns_root_path(f->root), f->path, rank, tensor->key,
		    (unsigned long long)piece->offset_bytes);
	return code;
}

/* All that is parsed, as a rule. An item's directory is behind its elements: the first bytes first, as storage may be
 * read in turn. */
static int read_edges(struct uns_source_file *source, struct uns_edges *edges, struct uns_err *err)
{
	struct uns_unchecked unchecked;
	int code;

	uns_unchecked_init(&unchecked);
	source->unchecked = &unchecked;
	code = uns_edges_fill(edges, err);
	if (code == 0)
		code = uns_source_check_read(source->backing, &unchecked, err);
	source->unchecked = NULL;
	uns_unchecked_fini(&unchecked);
	return code;
}

int uns_item_tensor_at(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		       struct uns_arena *arena, struct uns_torch_tensor *out, struct uns_err *err)
{
	struct uns_source_file source = { b, piece->file, NULL };
	struct uns_reader file = uns_reader_of_source(&source);
	struct uns_subreader part = { &file, piece->offset_bytes };
	struct uns_reader item = uns_reader_of_part(&part, piece->length_bytes), r;
	struct uns_edges edges;

	r = uns_reader_of_edges(&edges, &item);
	UNS_TRY(read_edges(&source, &edges, err));
	UNS_TRY(uns_item_tensor(b, tensor, piece, &r, arena, out, err));
	out->data_bytes += piece->offset_bytes;
	uns_count(&b->engine->count.items_resolved, 1);
	return 0;
}

uint32_t uns_item_crc(const struct uns_tensor *tensor, const struct uns_piece *piece, const struct uns_torch_tensor *t)
{
	const uint64_t bytes = uns_piece_elems(piece) * uns_dtype_size(tensor->dtype);

	return t->contiguous && t->first_elem == 0 && t->storage_bytes == bytes ? t->crc32 : 0;
}

/* The bytes from a piece's item on are one request to storage that is far, if they are few: an item's ends and its
 * elements would be three. */
static bool will_read(struct uns_backing *b, const struct uns_piece *piece, uint64_t end)
{
	return b->is_far && end - piece->offset_bytes <= AT_ONE_GO_BYTES &&
	       uns_source_will_read(b, piece->file, piece->offset_bytes, end);
}

static int read_location(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
			 struct uns_location *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_item_part *part = uns_piece_part(piece);
	struct uns_torch_tensor t;

	if (!uns_source_in_turn(b))
		will_read(b, piece, piece->offset_bytes + piece->length_bytes);
	UNS_TRY(uns_item_tensor_at(b, tensor, piece, &arena, &t, err));
	*out = (struct uns_location){
		.dense = t.contiguous,
		.crc32 = uns_item_crc(tensor, piece, &t),
		.data_bytes = t.data_bytes + (t.first_elem + (part ? part->first_elem : 0)) * uns_dtype_size(t.dtype),
	};
	return 0;
}

/* -- headers of several pieces at once -- */

struct item {
	const struct uns_tensor *tensor;
	const struct uns_piece *piece;
};

/* The items from first[k] to before first[k + 1] make a run. */
struct todo {
	struct uns_backing *b;
	struct item item[AHEAD_PIECES];
	size_t n, first[AHEAD_PIECES + 1], n_runs;
};

static bool is_plain_item(const struct uns_piece *piece)
{
	return piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE;
}

/* Add those of the pieces whose headers no thread has read or is reading. */
static void todo_add(struct todo *todo, const struct uns_tensor *tensor, const struct uns_piece *piece,
		     const struct uns_piece *end)
{
	struct uns_location unused;

	for (; piece < end && todo->n < AHEAD_PIECES; piece++) {
		if (!is_plain_item(piece) || state_of(resolved_of(todo->b, piece)) != UNS_RESOLVED_NEW ||
		    uns_location_known(todo->b, piece, &unused))
			continue;
		todo->item[todo->n++] = (struct item){ tensor, piece };
	}
}

static void todo_add_following(struct todo *todo, const struct uns_reading_segment *reading)
{
	const struct uns_segment *s = reading->layout->segment + reading->segment + 1;
	const struct uns_segment *end = reading->layout->segment + reading->layout->n;
	const uint64_t far = s[-1].at_bytes + s[-1].len_bytes + AHEAD_BYTES;
	const struct uns_piece *piece;
	size_t n;

	if (end - s > AHEAD_SEGMENTS)
		end = s + AHEAD_SEGMENTS;
	for (; s < end && s->at_bytes < far && todo->n < AHEAD_PIECES; s++)
		if (s->from == UNS_FROM_PIECES && !s->tensor->own) {
			piece = uns_segment_pieces(reading->layout, s, &n);
			todo_add(todo, s->tensor, piece, piece + n);
		}
}

static int by_place(const void *a, const void *b)
{
	const struct uns_piece *x = ((const struct item *)a)->piece, *y = ((const struct item *)b)->piece;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

static uint64_t end_of(const struct item *item)
{
	return item->piece->offset_bytes + item->piece->length_bytes;
}

/* Where storage is far, items that lie together make one run: they will be one request, and then in memory for the
 * thread that reads them. */
static void todo_divide(struct todo *todo)
{
	const struct uns_piece *first = NULL, *piece;
	size_t i;

	if (todo->b->is_far)
		qsort(todo->item, todo->n, sizeof(*todo->item), by_place);
	for (i = 0, todo->n_runs = 0; i < todo->n; i++) {
		piece = todo->item[i].piece;
		if (!i || !todo->b->is_far || piece->file != first->file ||
		    piece->offset_bytes - first->offset_bytes + piece->length_bytes > AT_ONE_GO_BYTES ||
		    piece->offset_bytes > end_of(&todo->item[i - 1]) + AT_ONE_GO_GAP_BYTES) {
			first = piece;
			todo->first[todo->n_runs++] = i;
		}
	}
	todo->first[todo->n_runs] = todo->n;
}

struct run {
	struct uns_backing *b;
	const struct item *item;
	size_t n;
};

/* A failure is left for the thread that needs the piece to find again. */
static int resolve_quietly(void *ctx, size_t i, struct uns_err *err)
{
	const struct run *run = ctx;
	const struct item *item = &run->item[i];
	struct uns_resolved *resolved = resolved_of(run->b, item->piece);
	unsigned claimed = UNS_RESOLVED_CLAIMED;
	struct uns_location found;

	(void)err;
	if (!resolved_claim(resolved))
		return 0;
	if (read_location(run->b, item->tensor, item->piece, &found, NULL) == 0)
		uns_location_keep(run->b, item->piece, &found);
	else
		atomic_compare_exchange_strong(&resolved->state, &claimed, UNS_RESOLVED_NEW);
	return 0;
}

static int resolve_run(void *ctx, size_t k, struct uns_err *err)
{
	struct todo *todo = ctx;
	struct run run = { todo->b, &todo->item[todo->first[k]], todo->first[k + 1] - todo->first[k] };
	size_t i;

	if (run.n > 1 && !will_read(run.b, run.item->piece, end_of(&run.item[run.n - 1])))
		return uns_pool_each(run.b->engine->pool, run.n, resolve_quietly, &run, err);
	for (i = 0; i < run.n; i++)
		resolve_quietly(&run, i, err);
	return 0;
}

/* -- */

int uns_locate(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
	       const struct uns_reading_segment *reading, struct uns_location *out, struct uns_err *err)
{
	if (piece->container == UNS_RAW) {
		*out = (struct uns_location){ .dense = !piece->stride_elems, .data_bytes = piece->offset_bytes };
		return 0;
	}
	if (uns_location_known(b, piece, out))
		return 0;
	if (reading && reading->layout && !uns_source_in_turn(b)) { /* else a header is read when its turn comes */
		struct todo todo = { .b = b };

		todo_add(&todo, tensor, piece, uns_tensor_pieces(b->cat, tensor) + tensor->n_pieces);
		todo_add_following(&todo, reading);
		todo_divide(&todo);
		if (todo.n > 1)
			uns_pool_each(b->engine->pool, todo.n_runs, resolve_run, &todo, NULL);
		if (uns_location_known(b, piece, out))
			return 0;
	}
	UNS_TRY(read_location(b, tensor, piece, out, err));
	uns_location_keep(b, piece, out);
	return 0;
}

struct whole_tensor {
	struct uns_backing *b;
	const struct uns_tensor *tensor;
};

static int resolve_one(void *ctx, size_t i, struct uns_err *err)
{
	struct whole_tensor *w = ctx;
	const struct uns_piece *piece = &uns_tensor_pieces(w->b->cat, w->tensor)[i];
	struct uns_location unused;

	return is_plain_item(piece) ? uns_locate(w->b, w->tensor, piece, NULL, &unused, err) : 0;
}

int uns_backing_resolve(struct uns_backing *b, const struct uns_tensor *tensor, struct uns_err *err)
{
	struct whole_tensor w = { b, tensor };

	return uns_pool_each(b->engine->pool, tensor->n_pieces, resolve_one, &w, err);
}
