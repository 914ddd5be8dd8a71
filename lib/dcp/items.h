/* A torch distributed checkpoint that is being written: all items in one file, each a torch.save file of its own, one
 * behind the other, and `.metadata`, which lists their places. Loaders read the parts that they need, at any number of
 * ranks. Reads no tensor's bytes: the file's layout lists the pieces that hold them.
 *
 *   DIR/.metadata   DIR/__0_0.distcp
 *
 * Source: torch 2.1 to 2.13, torch/distributed/checkpoint/{metadata,filesystem}.py. */
#ifndef UNS_DCP_ITEMS_H
#define UNS_DCP_ITEMS_H

#include "files/torch_file.h"

struct uns_dcp_items;

/* Begins a directory. What its files consist of is allocated in `arena`; `scratch` must live until
 * uns_dcp_items_finish. most: room for so many items. has_paths: keys have paths; else planner_data is None. */
int uns_dcp_items_new(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_arena *scratch, size_t most,
		      bool has_paths, struct uns_dcp_items **out, struct uns_err *err);

/* Adds an item under `key`: the tensor `leaf`, whole, or the value v if leaf is NULL. path: a TUPLE; NULL where keys
 * have none. All in the scratch arena. */
int uns_dcp_items_add(struct uns_dcp_items *items, const char *key, const struct uns_value *path,
		      const struct uns_torch_leaf *leaf, const struct uns_value *v, struct uns_err *err);

/* How many items uns_dcp_items_add_chunks makes of the tensor. */
size_t uns_dcp_items_count(const struct uns_tensor *t, uint64_t chunk_bytes);

/* Adds a tensor in its own dtype, without a path, as chunks: each is a matrix (the last two dimensions) or rows of one,
 * so that no loader has to read all layers for one; of rows as many as fit into chunk_bytes, but one at least. */
int uns_dcp_items_add_chunks(struct uns_dcp_items *items, const char *key, const struct uns_tensor *t,
			     uint64_t chunk_bytes, struct uns_err *err);

/* Adds an object as the checkpoint has it, byte for byte: a value that is not decoded and not compressed. */
int uns_dcp_items_add_stored(struct uns_dcp_items *items, const char *key, const struct uns_named_value *stored,
			     struct uns_err *err);

/* Add both files below `dir` ("" = the checkpoint's directory). items must not be used afterwards. */
int uns_dcp_items_finish(struct uns_dcp_items *items, const char *dir, struct uns_vtree *out, struct uns_err *err);

#endif
