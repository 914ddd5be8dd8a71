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
#include "wire/dtype.h"

/* A box of the tensor; it lies inside the tensor (checked) and may be empty. */
struct uns_dcp_chunk {
	uint64_t lo[UNS_MAX_DIMS], len[UNS_MAX_DIMS]; /* elements; as many as the tensor has dims */
	const struct uns_dcp_storage *storage; /* NULL = named, but not in storage_data: not saved */
};

/* One element of the true path of a value: ('optimizer', 'param_groups', 0, 'lr'). */
struct uns_dcp_step {
	const char *key; /* NULL = the element is the int `index` */
	int64_t index;
};

enum uns_dcp_kind {
	UNS_DCP_TENSOR,
	UNS_DCP_BYTES,   /* one pickled object: a torch.save item without tensors of its own shape */
	UNS_DCP_UNKNOWN, /* listed, but not usable: `why` says what is odd about it */
};

struct uns_dcp_entry {
	const char *key;                 /* flat: "model.layers.0.weight"; unique */
	const struct uns_dcp_step *path; /* at least one element; the flat key where none is recorded */
	size_t n_path;
	enum uns_dcp_kind kind;

	/* TENSOR */
	enum uns_dtype dtype;
	size_t n_dims;
	uint64_t dims[UNS_MAX_DIMS]; /* of the full tensor */
	struct uns_dcp_chunk *chunk; /* as listed: in no order, without equal offsets */
	size_t n_chunks;

	/* BYTES; NULL = not in storage_data */
	const struct uns_dcp_storage *bytes;

	/* UNKNOWN: -ENOTSUP (a class, dtype or rank that we do not know) or -EBADMSG (contradicts
	 * itself), and one sentence that names the key. NULL otherwise. */
	int code;
	const char *why;
	/* UNKNOWN because planner_data alone has the key. So a rank says it that holds nothing of a tensor
	 * (a ShardedTensor with fewer rows than ranks), where each rank writes metadata of its own. */
	bool is_elsewhere;
};

struct uns_dcp_metadata {
	/* In planner_data's order, which is the model's; keys that it lacks follow in
	 * state_dict_metadata's order. */
	struct uns_dcp_entry *entry;
	size_t n_entries;
	bool has_paths;            /* planner_data was there */
	const char *version;       /* "1.0.0"; NULL = not recorded (before torch 2.7) */
	const char *checkpoint_id; /* the path at save time, for people; NULL = not recorded */
};

/* Parse the whole file. Fails for a pickle that is not Metadata, for a storage path that leads out
 * of the directory and for numbers that overflow; what is odd about one entry only makes that entry
 * UNKNOWN. Everything lives in the arena. O(bytes) time; memory is bounded by a constant times the
 * input's size. */
int uns_dcp_metadata_parse(struct uns_span in, struct uns_arena *arena,
			   struct uns_dcp_metadata *out, struct uns_err *err);

/* The union of rank-local metadata (`__0.metadata`, `__1.metadata`, ..., saved with
 * use_collectives=False), in the order given: chunks with equal (key, offset) are one chunk, the
 * first that has storage stays. A key that some ranks only plan (is_elsewhere) is as the others describe
 * it. Ranks that disagree about a tensor's dtype, shape or a chunk's size make its entry UNKNOWN
 * (-EBADMSG). The parts are borrowed by the result. */
int uns_dcp_metadata_merge(const struct uns_dcp_metadata *parts, size_t n_parts,
			   struct uns_arena *arena, struct uns_dcp_metadata *out,
			   struct uns_err *err);

/* By flat key, or NULL. O(n). */
const struct uns_dcp_entry *uns_dcp_metadata_find(const struct uns_dcp_metadata *meta,
						  const char *key);

#endif
