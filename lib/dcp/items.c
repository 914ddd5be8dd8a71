/* Owns DCP's classes; does not know which framework will load them. */
#include "dcp/items.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/value_new.h"

#define METADATA  "torch.distributed.checkpoint.metadata."
#define DATA_NAME "__0_0.distcp"

static const struct uns_pickle_class metadata_classes[] = {
	{ .name = METADATA "Metadata" },
	{ .name = METADATA "TensorStorageMetadata" },
	{ .name = METADATA "BytesStorageMetadata" },
	{ .name = METADATA "ChunkStorageMetadata" },
	{ .name = METADATA "TensorProperties" },
	{ .name = METADATA "MetadataIndex" },
	{ .name = METADATA "_MEM_FORMAT_ENCODING", .called = true },
	{ .name = "torch.distributed.checkpoint.filesystem._StorageInfo" },
	{ .name = "torch.serialization._get_layout", .called = true },
	{ .name = NULL },
};

enum { MATRIX = 2 };

struct uns_dcp_items {
	const struct uns_catalog *cat;
	struct uns_arena *arena;   /* the tree's: holds layouts and literals */
	struct uns_arena *scratch; /* holds values until they are pickled */
	struct uns_layout_builder data;
	struct uns_value *entries, *paths, *storage; /* the dicts that Metadata consists of; paths: NULL = None */
};

/* -- Metadata's classes -- */

static const struct uns_value *object_of(struct uns_arena *arena, const char *cls, const struct uns_value *state)
{
	return uns_value_new_object(arena, cls, uns_value_new_tuple(arena, 0), state);
}

static const struct uns_value *call_of(struct uns_arena *arena, const char *cls, const struct uns_value *arg)
{
	struct uns_value *args = uns_value_new_tuple(arena, 1);

	uns_value_append(args, arg);
	return uns_value_new_object(arena, cls, args, NULL);
}

static const struct uns_value *chunk_entry(struct uns_arena *arena, const struct uns_box *box)
{
	struct uns_value *chunk = uns_value_new_dict(arena, 2);

	uns_value_put_str(arena, chunk, "offsets", uns_value_new_size(arena, box->lo, box->n));
	uns_value_put_str(arena, chunk, "sizes", uns_value_new_size(arena, box->len, box->n));
	return object_of(arena, METADATA "ChunkStorageMetadata", chunk);
}

/* TensorStorageMetadata. The fields of TensorProperties are (dtype, layout, requires_grad, memory_format, pin_memory).
 */
static const struct uns_value *tensor_entry(struct uns_arena *arena, enum uns_dtype out, const struct uns_shape *shape,
					    const struct uns_value *chunks)
{
	const char *dtype = uns_arena_printf(arena, "torch.%s", uns_dtype_info(out)->torch);
	struct uns_value *properties = uns_value_new_tuple(arena, 5), *state = uns_value_new_dict(arena, 3);

	uns_value_append(properties, uns_value_new_global(arena, dtype));
	uns_value_append(properties,
			 call_of(arena, "torch.serialization._get_layout", uns_value_new_str(arena, "torch.strided")));
	uns_value_append(properties, uns_value_new_bool(arena, false));
	uns_value_append(properties, call_of(arena, METADATA "_MEM_FORMAT_ENCODING", uns_value_new_int(arena, 0)));
	uns_value_append(properties, uns_value_new_bool(arena, false));
	uns_value_put_str(arena, state, "properties", object_of(arena, METADATA "TensorProperties", properties));
	uns_value_put_str(arena, state, "size", uns_value_new_size(arena, shape->dim, shape->n));
	uns_value_put_str(arena, state, "chunks", chunks);
	return object_of(arena, METADATA "TensorStorageMetadata", state);
}

/* -- the file -- */

static void append_layout(struct uns_layout_builder *b, const struct uns_layout *item)
{
	const struct uns_segment *s = item->segment, *end = s + item->n;

	for (; s < end; s++) {
		switch (s->from) {
		case UNS_FROM_LITERAL:
			uns_layout_literal(b, s->literal, (size_t)s->len_bytes);
			break;
		case UNS_FROM_ZEROS:
			uns_layout_zeros(b, s->len_bytes);
			break;
		case UNS_FROM_PIECES:
			uns_layout_tensor(b, s->tensor, s->first_elem, s->len_bytes / uns_dtype_size(s->out), s->out);
			break;
		case UNS_FROM_CRC32:
			uns_layout_crc32(b, s->tensor, s->out);
			break;
		}
	}
}

/* Appends a torch.save file: the tensor `leaf`, or the value v if leaf is NULL. */
static int append_item(struct uns_dcp_items *m, const struct uns_torch_leaf *leaf, const struct uns_value *v,
		       struct uns_err *err)
{
	struct uns_torch_leaf one = leaf ? *leaf : (struct uns_torch_leaf){ 0 };
	const struct uns_torch_leaves leaves = { .v = &one, .n = leaf ? 1 : 0 };
	const struct uns_torch_input in = { .cat = m->cat,
					    .root = leaf ? uns_value_new_tensor(m->scratch, 0) : v,
					    .leaves = &leaves,
					    .stem = "archive" };
	struct uns_layout item;

	UNS_TRY(uns_arena_check(m->scratch, err));
	UNS_TRY(uns_part_torch_file(&in, m->arena, &item, err));
	append_layout(&m->data, &item);
	return 0;
}

/* Lists what was appended from `at` on. box: of a tensor, the chunk that it is, and its number among the tensor's. */
static void list_item(struct uns_dcp_items *m, const char *key, const struct uns_box *box, size_t number, uint64_t at)
{
	struct uns_arena *a = m->scratch;
	struct uns_value *index = uns_value_new_dict(a, 3), *storage = uns_value_new_dict(a, 3);

	uns_value_put_str(a, index, "fqn", uns_value_new_str(a, key));
	uns_value_put_str(a, index, "offset", box ? uns_value_new_size(a, box->lo, box->n) : uns_value_new_none(a));
	uns_value_put_str(a, index, "index", box ? uns_value_new_int(a, (int64_t)number) : uns_value_new_none(a));
	uns_value_put_str(a, storage, "relative_path", uns_value_new_str(a, DATA_NAME));
	uns_value_put_str(a, storage, "offset", uns_value_new_int(a, (int64_t)at));
	uns_value_put_str(a, storage, "length", uns_value_new_int(a, (int64_t)(m->data.at_bytes - at)));
	uns_value_put(m->storage, object_of(a, METADATA "MetadataIndex", index),
		      object_of(a, "torch.distributed.checkpoint.filesystem._StorageInfo", storage));
}

static int list_entry(struct uns_dcp_items *m, const char *key, const struct uns_value *path,
		      const struct uns_value *entry, struct uns_err *err)
{
	uns_value_put_str(m->scratch, m->entries, key, entry);
	if (m->paths)
		uns_value_put_str(m->scratch, m->paths, key, path);
	return uns_arena_check(m->scratch, err);
}

static const struct uns_value *object_entry(struct uns_arena *arena)
{
	return object_of(arena, METADATA "BytesStorageMetadata", NULL);
}

/* -- items -- */

static struct uns_box whole_box(const struct uns_shape *shape)
{
	struct uns_box box = { .n = shape->n };

	memcpy(box.len, shape->dim, shape->n * sizeof(*box.len));
	return box;
}

int uns_dcp_items_add(struct uns_dcp_items *m, const char *key, const struct uns_value *path,
		      const struct uns_torch_leaf *leaf, const struct uns_value *v, struct uns_err *err)
{
	const struct uns_box box = leaf ? whole_box(&leaf->shape) : (struct uns_box){ 0 };
	struct uns_value *chunks = uns_value_new_list(m->scratch, 1);
	const uint64_t at = m->data.at_bytes;

	UNS_TRY(append_item(m, leaf, v, err));
	list_item(m, key, leaf ? &box : NULL, 0, at);
	if (!leaf)
		return list_entry(m, key, path, object_entry(m->scratch), err);
	uns_value_append(chunks, chunk_entry(m->scratch, &box));
	return list_entry(m, key, path, tensor_entry(m->scratch, leaf->out, &leaf->shape, chunks), err);
}

/* How a tensor is cut: into matrices, and these into rows. */
struct cut {
	uint64_t matrix_elems, chunk_elems; /* chunk_elems: the most; 0 = the tensor has no elements */
};

static struct cut cut_of(const struct uns_tensor *t, uint64_t chunk_bytes)
{
	const struct uns_shape *shape = &t->shape;
	const uint64_t row = shape->n ? shape->dim[shape->n - 1] : 1;
	const uint64_t rows = shape->n >= MATRIX ? shape->dim[shape->n - MATRIX] : 1;
	const uint64_t row_bytes = row * uns_dtype_size(t->dtype);
	struct cut cut = { .matrix_elems = rows * row };

	if (uns_shape_elems(shape))
		cut.chunk_elems = row * (chunk_bytes > row_bytes ? chunk_bytes / row_bytes : 1);
	return cut;
}

size_t uns_dcp_items_count(const struct uns_tensor *t, uint64_t chunk_bytes)
{
	const struct cut cut = cut_of(t, chunk_bytes);

	if (!cut.chunk_elems)
		return 1;
	return uns_shape_elems(&t->shape) / cut.matrix_elems *
	       ((cut.matrix_elems + cut.chunk_elems - 1) / cut.chunk_elems);
}

static int add_chunk(struct uns_dcp_items *m, const char *key, const struct uns_tensor *t, uint64_t first_elem,
		     const struct uns_box *box, struct uns_value *chunks, struct uns_err *err)
{
	const struct uns_torch_part part = { .tensor = t, .first_elem = first_elem, .n_elems = uns_box_elems(box) };
	struct uns_torch_leaf leaf = { .out = t->dtype, .shape = { .n = box->n }, .part = &part, .n_parts = 1 };
	const uint64_t at = m->data.at_bytes;

	memcpy(leaf.shape.dim, box->len, box->n * sizeof(*box->len));
	UNS_TRY(append_item(m, &leaf, NULL, err));
	list_item(m, key, box, chunks->n, at);
	uns_value_append(chunks, chunk_entry(m->scratch, box));
	return 0;
}

int uns_dcp_items_add_chunks(struct uns_dcp_items *m, const char *key, const struct uns_tensor *t, uint64_t chunk_bytes,
			     struct uns_err *err)
{
	struct uns_value *chunks = uns_value_new_list(m->scratch, uns_dcp_items_count(t, chunk_bytes));
	const uint64_t elems = uns_shape_elems(&t->shape);
	const struct cut cut = cut_of(t, chunk_bytes);
	uint64_t at = 0, matrix_end, end;
	struct uns_box box;

	UNS_TRY_ALLOC(chunks, err);
	if (!elems) {
		box = whole_box(&t->shape);
		UNS_TRY(add_chunk(m, key, t, 0, &box, chunks, err));
	}
	while (at < elems) {
		matrix_end = (at / cut.matrix_elems + 1) * cut.matrix_elems;
		end = matrix_end - at > cut.chunk_elems ? at + cut.chunk_elems : matrix_end;
		uns_box_at(&t->shape, at, end, &box);
		UNS_TRY(add_chunk(m, key, t, at, &box, chunks, err));
		at = end;
	}
	return list_entry(m, key, NULL, tensor_entry(m->scratch, t->dtype, &t->shape, chunks), err);
}

int uns_dcp_items_add_stored(struct uns_dcp_items *m, const char *key, const struct uns_named_value *stored,
			     struct uns_err *err)
{
	const uint64_t at = m->data.at_bytes;

	uns_layout_file_part(&m->data, m->cat, stored->file, stored->offset_bytes, stored->length_bytes);
	list_item(m, key, NULL, 0, at);
	return list_entry(m, key, NULL, object_entry(m->scratch), err);
}

/* -- the directory -- */

int uns_dcp_items_new(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_arena *scratch, size_t most,
		      bool has_paths, struct uns_dcp_items **out, struct uns_err *err)
{
	struct uns_dcp_items *m = UNS_NEW(scratch, struct uns_dcp_items);

	UNS_TRY_ALLOC(m, err);
	*m = (struct uns_dcp_items){ .cat = cat, .arena = arena, .scratch = scratch, .data = { .arena = arena } };
	m->entries = uns_value_new_dict(scratch, most);
	m->paths = has_paths ? uns_value_new_dict(scratch, most) : NULL;
	m->storage = uns_value_new_dict(scratch, most);
	*out = m;
	return uns_arena_check(scratch, err);
}

int uns_dcp_items_finish(struct uns_dcp_items *m, const char *dir, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_vfile file = { .source = UNS_NONE, .origin = "assembled from the checkpoint's tensors" };
	struct uns_value *state = uns_value_new_dict(m->scratch, 5);
	const struct uns_value *metadata = object_of(m->scratch, METADATA "Metadata", state);

	uns_value_put_str(m->scratch, state, "state_dict_metadata", m->entries);
	uns_value_put_str(m->scratch, state, "planner_data", m->paths ? m->paths : uns_value_new_none(m->scratch));
	uns_value_put_str(m->scratch, state, "storage_data", m->storage);
	uns_value_put_str(m->scratch, state, "storage_meta", uns_value_new_none(m->scratch));
	uns_value_put_str(m->scratch, state, "version", uns_value_new_str(m->scratch, "1.0.0"));
	UNS_TRY(uns_arena_check(m->scratch, err));
	file.path = uns_path_join(m->arena, dir, DATA_NAME);
	UNS_TRY(uns_layout_build(&m->data, m->cat, &file.layout, err));
	UNS_TRY(uns_vtree_add(out, &file, err));
	UNS_TRY(uns_pickle_emit(metadata, NULL, 0, metadata_classes, &text, err));
	return uns_vtree_add_text(out, uns_path_join(m->arena, dir, ".metadata"), text.p, text.len,
				  "synthesised: where the tensors are in " DATA_NAME, err);
}
