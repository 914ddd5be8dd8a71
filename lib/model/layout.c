/* Builds layouts, and finds the segment that holds a byte. Knows no files and no I/O. */
#include "model/layout.h"

#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/search.h"

static void builder_fail(struct uns_layout_builder *b, const char *why)
{
	b->failed = true;
	if (!b->why)
		b->why = why;
}

static void append(struct uns_layout_builder *b, struct uns_segment segment)
{
	if (b->failed || segment.len_bytes == 0)
		return;
	if (!UNS_ARENA_ROOM(b->arena, b->segment, b->n, b->cap)) {
		b->failed = true;
		return;
	}
	segment.at_bytes = b->at_bytes;
	if (!uns_u64_add(b->at_bytes, segment.len_bytes, &b->at_bytes) || b->at_bytes > INT64_MAX) {
		builder_fail(b, "a virtual file would be larger than 2^63 bytes");
		return;
	}
	b->segment[b->n++] = segment;
}

void uns_layout_reserve(struct uns_layout_builder *b, size_t n)
{
	if (n <= b->cap)
		return;
	b->segment = uns_arena_grow(b->arena, b->segment, b->n, n, sizeof(*b->segment));
	b->cap = b->segment ? n : 0;
	b->failed |= !b->segment;
}

void uns_layout_literal(struct uns_layout_builder *b, const void *bytes, size_t len)
{
	append(b, (struct uns_segment){ .from = UNS_FROM_LITERAL, .literal = bytes, .len_bytes = len });
}

void uns_layout_zeros(struct uns_layout_builder *b, uint64_t len_bytes)
{
	append(b, (struct uns_segment){ .from = UNS_FROM_ZEROS, .len_bytes = len_bytes });
}

uint64_t uns_slice_stretch_begin(const struct uns_slice *slice, uint64_t stretch)
{
	uint64_t at = slice->first_elem;
	unsigned i;

	for (i = UNS_SLICE_LOOPS; i > 0; i--) {
		const struct uns_slice_loop *loop = &slice->loop[i - 1];

		if (!loop->n)
			continue;
		at += stretch % loop->n * loop->step_elems;
		stretch /= loop->n;
	}
	return at;
}

void uns_layout_slice(struct uns_layout_builder *b, const struct uns_tensor *of, const struct uns_slice *slice,
		      uint64_t first_elem, uint64_t n_elems, enum uns_dtype out)
{
	const uint64_t n = uns_slice_stretches(slice), each = uns_shape_elems(&slice->shape) / n;
	uint64_t in, take;

	if (each * n != uns_shape_elems(&slice->shape)) {
		builder_fail(b, "a slice is not a whole number of stretches");
		return;
	}
	for (; n_elems && !b->failed; first_elem += take, n_elems -= take) {
		in = first_elem % each;
		take = each - in < n_elems ? each - in : n_elems;
		uns_layout_tensor(b, of, uns_slice_stretch_begin(slice, first_elem / each) + in, take, out);
	}
}

/* What the engine remembers of a tensor, it remembers of those in the catalog. */
static const struct uns_tensor *catalogs_own(const struct uns_tensor *t)
{
	return t->renamed ? t->renamed : t;
}

void uns_layout_tensor(struct uns_layout_builder *b, const struct uns_tensor *tensor, uint64_t first_elem,
		       uint64_t n_elems, enum uns_dtype out)
{
	struct uns_segment s = {
		.from = UNS_FROM_PIECES, .tensor = catalogs_own(tensor), .first_elem = first_elem, .out = out
	};

	if (tensor->of && uns_inside(first_elem, n_elems, uns_shape_elems(&tensor->shape)))
		uns_layout_slice(b, tensor->of, tensor->slice, first_elem, n_elems, out);
	else if (!uns_inside(first_elem, n_elems, uns_shape_elems(&tensor->shape)))
		builder_fail(b, "a segment passes the end of its tensor");
	else if (!uns_u64_mul(n_elems, uns_dtype_size(out), &s.len_bytes))
		builder_fail(b, "a virtual file would be larger than 2^63 bytes");
	else
		append(b, s);
}

void uns_layout_crc32(struct uns_layout_builder *b, const struct uns_tensor *tensor, enum uns_dtype out)
{
	if (tensor->of || tensor->sum || tensor->scaled || tensor->joined || uns_tensor_is_of_blocks(tensor))
		uns_layout_zeros(b, 4);
	else
		append(b, (struct uns_segment){
				  .from = UNS_FROM_CRC32, .tensor = catalogs_own(tensor), .out = out, .len_bytes = 4 });
}

/* An alias without pieces is read as the tensor that it names. Their types may differ (a weight of
 * which only the fp32 copy exists): the segment's own type is the one that is served. */
static void resolve_aliases(struct uns_layout_builder *b, const struct uns_catalog *cat)
{
	struct uns_segment *s = b->segment, *end = s + b->n;

	for (; s < end; s++)
		if (s->tensor)
			s->tensor = uns_tensor_with_bytes(cat, s->tensor);
}

int uns_layout_build(struct uns_layout_builder *b, const struct uns_catalog *cat, struct uns_layout *out,
		     struct uns_err *err)
{
	b->failed |= b->arena->failed;
	if (b->failed)
		return uns_fail(err, b->why ? -EINVAL : -ENOMEM, "%s: %s", cat->path,
				b->why ? b->why : "out of memory");
	resolve_aliases(b, cat);
	*out = (struct uns_layout){ .catalog = cat, .segment = b->segment, .n = b->n, .size_bytes = b->at_bytes };
	return 0;
}

/* One tensor of bytes with one piece. */
static struct uns_tensor *bytes_tensor(struct uns_arena *arena, const struct uns_file *file,
				       const struct uns_piece *piece)
{
	struct uns_tensor *t = UNS_NEW(arena, struct uns_tensor);

	if (!t)
		return NULL;
	*t = (struct uns_tensor){ .name = file->path,
				  .key = file->path,
				  .root = "",
				  .role = UNS_ROLE_OTHER,
				  .dtype = UNS_U8,
				  .shape = { .n = 1, .dim = { piece->length_bytes } },
				  .group = -1,
				  .position = -1,
				  .first_piece = UNS_NONE,
				  .own = piece,
				  .n_pieces = 1,
				  .alias_of = UNS_NONE };
	return t;
}

void uns_layout_file_part(struct uns_layout_builder *b, const struct uns_catalog *cat, uint32_t file,
			  uint64_t offset_bytes, uint64_t len_bytes)
{
	struct uns_piece *piece = UNS_NEW(b->arena, struct uns_piece);
	const struct uns_tensor *tensor;

	if (!piece)
		return; /* the arena remembers it */
	*piece = (struct uns_piece){ .kind = UNS_PIECE_RANGE,
				     .range = { 0, len_bytes },
				     .offset_bytes = offset_bytes,
				     .file = file,
				     .rank = -1,
				     .container = UNS_RAW,
				     .length_bytes = len_bytes };
	tensor = bytes_tensor(b->arena, &cat->files[file], piece);
	if (tensor)
		append(b, (struct uns_segment){
				  .from = UNS_FROM_PIECES, .tensor = tensor, .out = UNS_U8, .len_bytes = len_bytes });
}

int uns_layout_of_file(struct uns_arena *arena, const struct uns_catalog *cat, uint32_t file, struct uns_layout *out,
		       struct uns_err *err)
{
	const struct uns_file *f = &cat->files[file];
	struct uns_layout_builder b = { .arena = arena };

	if (f->missing)
		return uns_fail(err, -ENODATA, "%s/%s is missing", uns_root_path(f->root), f->path);
	uns_layout_file_part(&b, cat, file, 0, f->stat.id.size);
	return uns_layout_build(&b, cat, out, err);
}

size_t uns_layout_find(const struct uns_layout *layout, uint64_t at_bytes)
{
	const struct uns_segment *s = layout->segment;
	size_t i;

	UNS_SEARCH(i, layout->n, s[i].at_bytes + s[i].len_bytes <= at_bytes);
	return i;
}

const struct uns_piece *uns_segment_pieces(const struct uns_layout *layout, const struct uns_segment *segment,
					   size_t *n)
{
	const struct uns_tensor *t = uns_tensor_with_bytes(layout->catalog, segment->tensor);

	*n = t->n_pieces;
	return uns_tensor_pieces(layout->catalog, t);
}
