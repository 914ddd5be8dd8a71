/* The writer of view dcp: one .distcp file in which every tensor is an item of its own (a torch.save file), one behind
 * the other, and the .metadata that lists each of them as one chunk. Loaders read the parts that they need, at any
 * number of ranks. The writer reads no tensor's bytes: the file's layout lists the pieces that hold them. This file
 * owns DCP's classes; it does not know which framework will load them. */
#include "dcp/made.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "files/adapter.h"
#include "files/optimizer_state.h"
#include "files/masters.h"
#include "files/torch_file.h"
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

struct uns_dcp_made {
	const struct uns_catalog *cat;
	struct uns_arena *arena;   /* the tree's: holds layouts and literals */
	struct uns_arena *scratch; /* holds values until they are pickled */
	struct uns_layout_builder data;
	struct uns_value *entries, *paths, *storage; /* the dicts that Metadata consists of */
};

/* -- keys -- */

/* A key as path elements: ('optimizer', 'state', NAME, 'exp_avg') has four. The number of a param group is an int. */
struct key {
	const char *root, *name, *state;
	bool in_state, in_group;
	size_t group;
};

static const struct uns_value *path_value(struct uns_arena *arena, const struct key *k)
{
	struct uns_value *path = uns_value_new_tuple(arena, 4);

	uns_value_append(path, uns_value_new_str(arena, k->root));
	if (k->in_group) {
		uns_value_append(path, uns_value_new_str(arena, "param_groups"));
		uns_value_append(path, uns_value_new_int(arena, (int64_t)k->group));
	} else if (k->in_state) {
		uns_value_append(path, uns_value_new_str(arena, "state"));
	}
	uns_value_append(path, uns_value_new_str(arena, k->name));
	if (k->in_state)
		uns_value_append(path, uns_value_new_str(arena, k->state));
	return path;
}

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

/* TensorStorageMetadata, with one chunk: the whole tensor. The fields of TensorProperties are (dtype, layout,
 * requires_grad, memory_format, pin_memory). */
static const struct uns_value *tensor_entry(struct uns_arena *arena, const struct uns_torch_leaf *leaf)
{
	const char *dtype = uns_arena_printf(arena, "torch.%s", uns_dtype_info(leaf->out)->torch);
	struct uns_value *properties = uns_value_new_tuple(arena, 5), *chunks = uns_value_new_list(arena, 1);
	struct uns_value *chunk = uns_value_new_dict(arena, 2), *state = uns_value_new_dict(arena, 3);

	uns_value_append(properties, uns_value_new_global(arena, dtype));
	uns_value_append(properties,
			 call_of(arena, "torch.serialization._get_layout", uns_value_new_str(arena, "torch.strided")));
	uns_value_append(properties, uns_value_new_bool(arena, false));
	uns_value_append(properties, call_of(arena, METADATA "_MEM_FORMAT_ENCODING", uns_value_new_int(arena, 0)));
	uns_value_append(properties, uns_value_new_bool(arena, false));
	uns_value_put_str(arena, chunk, "offsets", uns_value_new_size(arena, NULL, leaf->shape.n));
	uns_value_put_str(arena, chunk, "sizes", uns_value_new_size(arena, leaf->shape.dim, leaf->shape.n));
	uns_value_append(chunks, object_of(arena, METADATA "ChunkStorageMetadata", chunk));
	uns_value_put_str(arena, state, "properties", object_of(arena, METADATA "TensorProperties", properties));
	uns_value_put_str(arena, state, "size", uns_value_new_size(arena, leaf->shape.dim, leaf->shape.n));
	uns_value_put_str(arena, state, "chunks", chunks);
	return object_of(arena, METADATA "TensorStorageMetadata", state);
}

/* -- items -- */

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

/* Adds an item: the tensor `leaf`, or the value v if leaf is NULL. */
static int add_item(struct uns_dcp_made *m, const struct key *k, struct uns_torch_leaf *leaf, const struct uns_value *v,
		    struct uns_err *err)
{
	struct uns_arena *a = m->scratch;
	const struct uns_torch_leaves leaves = { .v = leaf, .n = leaf ? 1 : 0 };
	const struct uns_torch_input in = {
		.cat = m->cat, .root = leaf ? uns_value_new_tensor(a, 0) : v, .leaves = &leaves, .stem = "archive"
	};
	struct uns_value *index = uns_value_new_dict(a, 3), *storage = uns_value_new_dict(a, 3);
	const uint64_t at = m->data.at_bytes;
	struct uns_layout item;
	const char *key;

	key = k->in_group   ? uns_arena_printf(a, "%s.param_groups.%zu.%s", k->root, k->group, k->name)
	      : k->in_state ? uns_arena_printf(a, "%s.state.%s.%s", k->root, k->name, k->state)
			    : uns_arena_printf(a, "%s.%s", k->root, k->name);
	UNS_TRY(uns_arena_check(a, err));
	UNS_TRY(uns_part_torch_file(&in, m->arena, &item, err));
	append_layout(&m->data, &item);
	uns_value_put_str(a, index, "fqn", uns_value_new_str(a, key));
	uns_value_put_str(a, index, "offset",
			  leaf ? uns_value_new_size(a, NULL, leaf->shape.n) : uns_value_new_none(a));
	uns_value_put_str(a, index, "index", leaf ? uns_value_new_int(a, 0) : uns_value_new_none(a));
	uns_value_put_str(a, storage, "relative_path", uns_value_new_str(a, DATA_NAME));
	uns_value_put_str(a, storage, "offset", uns_value_new_int(a, (int64_t)at));
	uns_value_put_str(a, storage, "length", uns_value_new_int(a, (int64_t)item.size_bytes));
	uns_value_put_str(a, m->entries, key,
			  leaf ? tensor_entry(a, leaf) : object_of(a, METADATA "BytesStorageMetadata", NULL));
	uns_value_put_str(a, m->paths, key, path_value(a, k));
	uns_value_put(m->storage, object_of(a, METADATA "MetadataIndex", index),
		      object_of(a, "torch.distributed.checkpoint.filesystem._StorageInfo", storage));
	return uns_arena_check(a, err);
}

/* -- the model -- */

int uns_dcp_made_add_model(struct uns_dcp_made *m, bool by_file_names, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t, *end = m->cat->tensors + m->cat->n_tensors, *master;

	UNS_TRY(uns_masters_find(m->cat, &masters, err));
	for (t = m->cat->tensors; t < end; t++) {
		struct key k = { .root = "model", .name = t->name };
		struct uns_torch_leaf leaf = { .tensor = t, .out = t->dtype, .shape = t->shape };

		if (!uns_role_is_model(t->role))
			continue;
		if (by_file_names && t->of_adapter)
			k.name = uns_adapter_name(m->scratch, t->name);
		master = t->role == UNS_ROLE_WEIGHT ? uns_map_get(&masters, t->name) : NULL;
		if (master && uns_shape_equal(&master->shape, &t->shape))
			leaf = (struct uns_torch_leaf){ .tensor = master, .out = master->dtype, .shape = t->shape };
		UNS_TRY(add_item(m, &k, &leaf, NULL, err));
	}
	return 0;
}

/* -- the optimizer -- */

/* {state: tensor or number} of one parameter. */
static int add_states(struct uns_dcp_made *m, const char *param, const struct uns_value *states,
		      const struct uns_torch_leaves *leaves, struct uns_err *err)
{
	struct key k = { .root = "optimizer", .name = param, .in_state = true };
	const struct uns_value *v;
	size_t i;

	for (i = 0; i < states->n; i++) {
		k.state = uns_value_str(states->pair[i].key);
		v = states->pair[i].value;
		UNS_TRY(add_item(m, &k, v->kind == UNS_VALUE_TENSOR ? &leaves->v[v->tensor] : NULL, v, err));
	}
	return 0;
}

static int add_group(struct uns_dcp_made *m, const struct uns_value *group, size_t index, struct uns_err *err)
{
	struct key k = { .root = "optimizer", .in_group = true, .group = index };
	size_t i;

	for (i = 0; i < group->n; i++) {
		k.name = uns_value_str(group->pair[i].key);
		if (!k.name)
			return UNS_CATALOG_FAIL(m->cat, err, SETTING_UNNAMED, .scope = UNS_SCOPE_OPTIMIZER);
		UNS_TRY(add_item(m, &k, NULL, group->pair[i].value, err));
	}
	return 0;
}

/* The state dict that torch would have saved whole, item by item. */
int uns_dcp_made_add_optimizer(struct uns_dcp_made *m, int64_t global_step, struct uns_err *err)
{
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_optimizer_state optimizer;
	const struct uns_value *states, *groups;
	size_t i;

	UNS_TRY(uns_optimizer_state_build(m->cat, uns_optimizer_root(m->cat), UNS_IDS_NAMES, global_step, m->arena,
					  &leaves, &optimizer, err));
	states = uns_value_get(optimizer.root, "state");
	groups = uns_value_get(optimizer.root, "param_groups");
	for (i = 0; i < states->n; i++)
		UNS_TRY(add_states(m, uns_value_str(states->pair[i].key), states->pair[i].value, &leaves, err));
	for (i = 0; i < groups->n; i++)
		UNS_TRY(add_group(m, groups->item[i], i, err));
	return 0;
}

/* -- the directory -- */

int uns_dcp_made_new(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_arena *scratch,
		     struct uns_dcp_made **out, struct uns_err *err)
{
	struct uns_dcp_made *m = UNS_NEW(scratch, struct uns_dcp_made);
	size_t most = cat->n_tensors * 2, i;

	UNS_TRY_ALLOC(m, err);
	/* Counted twice, once for the group and once for its parameters' keys. */
	for (i = 0; i < cat->n_groups; i++)
		most += 2 + (cat->groups[i].hyper ? 2 * cat->groups[i].hyper->n : 0) + 3 * cat->groups[i].n_params;
	*m = (struct uns_dcp_made){ .cat = cat, .arena = arena, .scratch = scratch, .data = { .arena = arena } };
	m->entries = uns_value_new_dict(scratch, most);
	m->paths = uns_value_new_dict(scratch, most);
	m->storage = uns_value_new_dict(scratch, most);
	*out = m;
	return uns_arena_check(scratch, err);
}

int uns_dcp_made_finish(struct uns_dcp_made *m, const char *dir, struct uns_vtree *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct uns_vfile file = { .source = UNS_NONE, .origin = "assembled from the checkpoint's tensors" };
	struct uns_value *state = uns_value_new_dict(m->scratch, 5);
	const struct uns_value *metadata = object_of(m->scratch, METADATA "Metadata", state);

	uns_value_put_str(m->scratch, state, "state_dict_metadata", m->entries);
	uns_value_put_str(m->scratch, state, "planner_data", m->paths);
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
