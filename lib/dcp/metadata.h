/* The `.metadata` of a torch.distributed.checkpoint directory: which tensors there are, in which
 * chunks, and where each chunk's bytes lie. Pure; knows no files and no frameworks.
 *
 *   Metadata { state_dict_metadata: {flat key: TensorStorageMetadata{properties, size, chunks[]}
 *                                              | BytesStorageMetadata},
 *              planner_data:        {flat key: path tuple} or None,
 *              storage_data:        {MetadataIndex{fqn, offset}: _StorageInfo{relative_path, offset,
 *                                    length[, transform_descriptors]}},
 *              storage_meta, version }          (the last two are absent in old files)
 *
 * Source: torch 2.0 - 2.13 (torch/distributed/checkpoint/metadata.py, filesystem.py) and their files;
 * Megatron-Core's torch_dist, which leaves planner_data None. */
#ifndef UNS_DCP_METADATA_H
#define UNS_DCP_METADATA_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "dcp/storage.h"
#include "model/catalog.h"
#include "wire/dtype.h"

/* A box of the tensor. It was checked to be inside the tensor. It may be empty. There may be millions. */
struct uns_dcp_chunk {
	const struct uns_box *box;
	/* NULL = the chunk is listed, but storage_data has no item for it: it was not saved. */
	const struct uns_dcp_storage *storage;
	/* The item holds more than the chunk, and flat: megatron/space.h. NULL = it is the chunk. */
	const struct uns_item_part *part;
};

/* One element of a value's path in the state dict: ('optimizer', 'param_groups', 0, 'lr') has four. */
struct uns_dcp_step {
	const char *key; /* NULL = the element is a number, `index` */
	int64_t index;
};

enum uns_dcp_kind {
	UNS_DCP_TENSOR,
	UNS_DCP_BYTES,   /* one pickled object that is not a tensor */
	UNS_DCP_UNKNOWN, /* listed, but not usable: see `why` */
};

struct uns_dcp_entry {
	const char *key;                 /* the flat key, "model.layers.0.weight"; unique */
	/* At least one element; if no path is recorded, one element with the flat key. */
	const struct uns_dcp_step *path;
	size_t n_path;
	enum uns_dcp_kind kind;

	/* of kind TENSOR */
	enum uns_dtype dtype;
	size_t n_dims;
	uint64_t dims[UNS_MAX_DIMS]; /* of the whole tensor */
	struct uns_dcp_chunk *chunk; /* in the order in which they are listed; no two have the same offset */
	size_t n_chunks;

	/* of kind BYTES; NULL = storage_data has no item for it */
	const struct uns_dcp_storage *bytes;

	/* of kind UNKNOWN: -ENOTSUP (a class, dtype or number of dimensions that unshard does not know) or
	 * -EBADMSG (it contradicts itself), and one sentence that names the key. Otherwise NULL. */
	int code;
	const char *why;
	/* It is UNKNOWN because only planner_data has the key. If each rank writes metadata of its own, a rank that
	 * holds no rows of a tensor (a ShardedTensor with fewer rows than ranks) lists it like this. */
	bool is_elsewhere;
};

/* Is step i of its path this key? false if the path has no such step. */
bool uns_dcp_step_is(const struct uns_dcp_entry *e, size_t i, const char *key);

struct uns_dcp_metadata {
	/* In planner_data's order, which is the model's. Keys that planner_data lacks follow, in
	 * state_dict_metadata's order. */
	struct uns_dcp_entry *entry;
	size_t n_entries;
	bool has_paths;            /* planner_data exists */
	const char *version;       /* "1.0.0"; NULL = not recorded (before torch 2.7) */
	const char *checkpoint_id; /* the path that the checkpoint was saved to, for people; NULL = not recorded */
};

/* Parses the whole file. in_arena, unless it is NULL, is emptied as soon as the bytes of `in`, which it holds, are not
 * needed any more: before the entries are made. Fails if the pickle is not Metadata, if a storage path leads out of the
 * directory, or if numbers overflow. Any other mistake makes only the entry UNKNOWN that it is in. Everything is
 * allocated in the arena. O(bytes) time; memory is at most a constant times the input's size. */
int uns_dcp_metadata_parse(struct uns_span in, struct uns_arena *in_arena, struct uns_arena *arena,
			   struct uns_dcp_metadata *out, struct uns_err *err);

/* Joins the metadata that each rank wrote by itself (`__0.metadata`, `__1.metadata`, ..., saved with
 * use_collectives=False), in the order given. Chunks with equal key and offset are one chunk; the first
 * that has storage is kept. A key that some ranks only list (is_elsewhere) gets the other ranks'
 * description. If ranks disagree about a tensor's dtype, shape or the size of a chunk, its entry becomes
 * UNKNOWN (-EBADMSG). The result borrows from the parts. */
int uns_dcp_metadata_merge(const struct uns_dcp_metadata *parts, size_t n_parts, struct uns_arena *arena,
			   struct uns_dcp_metadata *out, struct uns_err *err);

#endif
