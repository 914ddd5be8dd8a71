/* The catalog: what one checkpoint holds, in terms that no framework owns. Formats fill it and views read it; they have
 * nothing else in common. Immutable once uns_catalog_seal has accepted it.
 *
 *   files    source files with the identity they had when read
 *   tensors  full tensors: name, dtype, shape, role; each has pieces
 *   pieces   where a box or flat range of a tensor lies: file, offset, container, codec
 *   groups   optimizer param groups: hyper-parameters and the names of their parameters, in order
 *   values   everything else that was saved, as plain data
 *   companions  whole files beside the shards (config.json, scheduler.pt, rng_state_0.pth, ...)
 *   summary, findings
 *
 * Everything lives in the catalog's arena, but for the array of pieces. */
#ifndef UNS_MODEL_CATALOG_H
#define UNS_MODEL_CATALOG_H

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/map.h"
#include "io/seen.h"
#include "model/box_pool.h"
#include "model/finding.h"
#include "wire/dtype.h"
#include "wire/value.h"

/* A source file. A file that metadata names and that does not exist is listed with missing = true: only a read of its
 * bytes fails. */
struct uns_file {
	const struct uns_root *root;
	const char *path; /* below root */
	struct uns_stat stat;
	bool missing;
};

enum uns_role {
	UNS_ROLE_WEIGHT, /* a model tensor as trained (also buffers, if nothing distinguishes them) */
	UNS_ROLE_BUFFER,
	UNS_ROLE_MASTER, /* the optimizer's fp32 copy of a weight */
	UNS_ROLE_EXP_AVG,
	UNS_ROLE_EXP_AVG_SQ,
	UNS_ROLE_STEP,
	UNS_ROLE_OPTIM_OTHER, /* any other per-parameter optimizer state; `state` names it */
	UNS_ROLE_OTHER, /* a tensor that is neither model nor optimizer */
};

enum uns_codec { UNS_CODEC_NONE, UNS_CODEC_ZSTD };

enum uns_container {
	UNS_RAW, /* offset is the first element's byte; strides as given */
	UNS_TORCH_ITEM, /* [offset, offset+length) is a torch.save zip of this one tensor: its header
			 * gives data offset and strides, and is read on first touch (engine) */
	UNS_BLOCK, /* no file has these bytes in this order: `block` lists the tensors and elements. Only of a tensor
		      that is in no catalog */
};

/* Of an item with this many elements, in C order, a piece is those from this one on. */
struct uns_item_part {
	uint64_t first_elem, n_elems;
};

enum { UNS_BLOCK_SOURCES = 2 };

/* Elements of the catalog's tensors in another order, or of two of them as one piece. */
struct uns_block {
	/* Each has an equal share of the block's elements, without gaps; the shares follow each other. */
	struct uns_block_source {
		const struct uns_tensor *tensor;
		uint64_t first_elem;
	} source[UNS_BLOCK_SOURCES];
	unsigned n_sources;
	uint64_t len[3]; /* the block's shape, as its elements lie there in C order */
	bool reversed; /* the piece has them in C order after the three dimensions were put in reverse order */
};

struct uns_sum; /* model/sum_tensor.h */
struct uns_scaled; /* model/scaled_tensor.h */
struct uns_joined; /* model/joined_tensor.h */

enum uns_piece_kind { UNS_PIECE_BOX, UNS_PIECE_RANGE };

/* There may be millions. */
struct uns_piece {
	union { /* where in the full tensor */
		const struct uns_box *box; /* of a catalog's piece: in its arena */
		struct uns_range range;
	};
	uint64_t offset_bytes, length_bytes; /* in the file, as stored (compressed if codec is set) */
	union {
		const uint64_t *stride_elems; /* UNS_RAW: per box dimension; NULL = C order */
		const struct uns_block *block; /* UNS_BLOCK */
		const struct uns_item_part *part; /* UNS_TORCH_ITEM, not compressed: of an item of whatever shape; NULL
						   * = the item is the piece */
	};
	uint32_t file; /* index into files; UNS_BLOCK: one of several */
	int32_t rank; /* the writer's, for messages; -1 = unknown */
	enum uns_piece_kind kind;
	enum uns_container container;
	enum uns_codec codec;
	uint32_t crc32; /* UNS_RAW: of exactly these bytes, as the file recorded it; 0 = it did not */
};

#define UNS_NONE UINT32_MAX

enum { UNS_SLICE_LOOPS = 3 };

/* A part of a tensor, as a tensor of its own: its elements, in stretches of equal length, which follow each other as in
 * loops inside each other, the outermost first. Without a loop it is contiguous. */
struct uns_slice {
	uint64_t first_elem; /* in C order */
	struct uns_shape shape;
	struct uns_slice_loop {
		uint64_t n; /* 0 = there is no such loop */
		uint64_t step_elems; /* from one time to the next */
	} loop[UNS_SLICE_LOOPS];
	bool joined; /* goes into the file of the slice that is listed before it */
};

struct uns_tensor {
	const char *name; /* fully qualified name of the weight; of the parameter, for optimizer state */
	const char *key; /* what the source calls it; for messages and for the dcp form */
	const char *root; /* top-level key in the source ("model", "optimizer", "state_dict"), "" = none */
	const char *state; /* optimizer state name ("exp_avg", "momentum_buffer"); NULL for others */
	enum uns_role role;
	enum uns_dtype dtype;
	struct uns_shape shape;
	int32_t group, position; /* param group and place in it; -1 = not known or not in one */
	uint32_t first_piece, n_pieces; /* in catalog->pieces; sorted by uns_catalog_seal */
	const struct uns_piece *own; /* those of a tensor that is in no catalog, sorted too; NULL = see first_piece */
	/* Of a tensor that was made for a view: these elements of another tensor, which is in the catalog. NULL = it is
	 * in the catalog itself. */
	const struct uns_tensor *of;
	const struct uns_slice *slice;
	/* Of a tensor that was made for a view and has no pieces: its elements are this sum of other tensors'. NULL =
	 * they are stored. */
	const struct uns_sum *sum;
	/* The same, its elements being those of a matrix as 8-bit numbers, or their scales. */
	const struct uns_scaled *scaled;
	/* The same, its elements being other tensors' in another arrangement. */
	const struct uns_joined *joined;
	/* Of a tensor that was made for a view: the one in the catalog that has all the same elements under another
	 * name. NULL = none has. */
	const struct uns_tensor *renamed;
	/* Tensor that the source itself declares to share these bytes, or UNS_NONE. Of a WEIGHT without
	 * pieces it may be a MASTER of another type: the source holds the weight in that form only, and
	 * the weight is its elements rounded to `dtype`. */
	uint32_t alias_of;
	bool inferred; /* name or place was derived, not recorded; provenance.json has it */
	bool strange; /* its bytes are not simply its values (a subclass, quantised, ..): a finding has the class */
	bool of_adapter; /* a weight of an adapter (summary.adapter), not of the model that it adapts */
	bool sharded; /* of per-rank files: saved as a DTensor or ShardedTensor, even where one rank has
		       * it all; the others are plain tensors, which ranks hold copies of */
};
/* In an initialiser: in no param group (yet), and no other name of another tensor. */
#define UNS_TENSOR_ALONE .group = -1, .position = -1, .alias_of = UNS_NONE

struct uns_group {
	const struct uns_value *hyper; /* DICT without "params" */
	const char **param; /* fully qualified names, in order */
	size_t n_params;
	const char *root; /* which optimizer: "optimizer", "optimizer_0" */
	bool guessed; /* one of several put together from values stored with each parameter: which
		       * parameters share a group, and the groups' order, are not recorded */
	bool bare; /* its hyper-parameters were not saved: hyper has a step at most */
	bool numbered; /* its parameters have no names: param holds the numbers of torch's own state_dict, as text */
};

/* A value that was saved and is not a tensor. */
struct uns_named_value {
	const char *name; /* path below root joined by '.', as the source spells it */
	const char *root;
	const struct uns_value *value; /* NULL: not decoded (see file/offset: one torch.save item) */
	uint32_t file;
	uint64_t offset_bytes, length_bytes;
	enum uns_codec codec;
};

struct uns_companion {
	const char *name; /* relative to the checkpoint directory, may hold '/' */
	uint32_t file;
	bool shard; /* part of the sharded form (.metadata, .distcp, per-rank files): not for views that
		     * assemble */
	bool of_model; /* of a model that is in a directory of its own: a script saved it, or a pipeline has it */
	bool of_base; /* of the model that adapter_config.json names: for views that have that model's weights */
	struct uns_span text; /* shown in place of the file, which has it as a part; empty = the file itself is shown */
	bool made; /* the text is no part of the file, but made from what the file has */
};

enum { UNS_UNKNOWN = -1 };

/* In what form a checkpoint was saved. */
enum uns_family {
	UNS_FAMILY_WHOLE, /* by one process, or gathered: model.safetensors, pytorch_model.bin */
	UNS_FAMILY_DCP, /* torch.distributed.checkpoint: .metadata and .distcp files */
	UNS_FAMILY_ZERO, /* shards of DeepSpeed's ranks */
	UNS_FAMILY_UNIVERSAL, /* DeepSpeed's universal checkpoint */
	UNS_FAMILY_RANKS, /* a state dict of each FSDP rank */
	UNS_FAMILY_MEGATRON, /* a state dict of each model-parallel rank of Megatron-LM */
	UNS_N_FAMILIES
};

static inline bool uns_family_is_deepspeed(enum uns_family family)
{
	return family == UNS_FAMILY_ZERO || family == UNS_FAMILY_UNIVERSAL;
}

/* The programs that can resume from it. */
enum uns_resumer {
	/* transformers' Trainer: fails without a trainer_state.json */
	UNS_BY_TRAINER = 1 << 0,
	/* a loop of Accelerate's: optimizer.bin, random_states_<rank>.pkl */
	UNS_BY_ACCELERATE = 1 << 1,
	/* Lightning's Trainer, on whatever strategy */
	UNS_BY_LIGHTNING = 1 << 2,
	/* DeepSpeed's engine alone: its files hold all that was saved beside model and optimizer */
	UNS_BY_ENGINE = 1 << 3,
	/* Lightning Fabric, under keys of the script's own */
	UNS_BY_FABRIC = 1 << 4,
	UNS_RESUMERS = (1 << 5) - 1
};

/* The file that names a run's last checkpoint, which its trainer looks for. */
enum uns_tracker {
	UNS_TRACKER_NONE, /* or its place is not known */
	UNS_TRACKER_VERL, /* latest_checkpointed_iteration.txt */
	UNS_TRACKER_EASYR1, /* checkpoint_tracker.json */
	UNS_TRACKER_DEEPSPEED, /* latest */
	UNS_N_TRACKERS
};
enum { UNS_TRACKER_UP_MAX = 2 };

/* Whether weights are those of PEFT's adapters. */
enum uns_adapter {
	UNS_ADAPTER_NONE,
	UNS_ADAPTER_ALONE, /* all of them are: they are loaded into a model that is somewhere else */
	UNS_ADAPTER_AND_BASE, /* the model that they adapt was saved with them */
	UNS_ADAPTER_BESIDE, /* they are no weights of the model: PEFT's own files lie beside it (torchtune) */
	UNS_ADAPTER_OTHER, /* of a LoRA under another program's names (files/other_lora.h), alone or with its model */
	UNS_N_ADAPTERS
};

/* What is known of a checkpoint beside its tensors. Views, check and repair decide by what it is and what it has, never
 * by the name of its framework. */
struct uns_summary {
	const char *format; /* the format's name: for people, as this: */
	const char *framework; /* "Hugging Face Trainer, FSDP" */

	enum uns_family family;
	unsigned resumed_by; /* enum uns_resumer; 0: by a script of its own */
	enum uns_adapter adapter;
	enum uns_tracker tracker;
	unsigned tracker_up; /* in which directory it lies: 0 = the checkpoint's own, which holds what it
			      * names; 1 = the one above; 2 = the one above that */
	bool of_trainer; /* a Trainer saved it, with all that a Trainer needs to resume */
	bool is_one_file; /* what loads it takes one file, X.ckpt, for the same thing */
	bool is_weights_only; /* on purpose: there is no optimizer that could be missing */
	bool is_in_parts; /* DCP directories of model and optimizer, as a sharded resume names them */
	bool is_published; /* the files of weights are as save_pretrained writes them */
	bool is_pretrained; /* its weights are what from_pretrained takes */
	bool is_pipeline; /* saved by stages, with names and numbers of parameters of their own */
	bool has_experts; /* of deepspeed.moe: which of them a rank has is the model's, and its names are by that */
	bool experts_vary; /* of one layer more ranks share them than of another */
	bool is_autoep; /* DeepSpeed's AutoEP shared the experts out, which have names and shapes of its own */
	bool wants_config; /* config.json belongs beside it */
	bool has_rng_of_ranks; /* random states of each rank that wrote shards, one file a rank */
	bool has_engine_state; /* what DeepSpeed's engine saves beside tensors */
	bool is_megatron; /* tensors have Megatron-Core's names and shapes, its padding of the vocabulary too */
	bool named_by_rule; /* the optimizer's states have names that were not saved: their fp32 copies must be compared
			     * with the weights before they are shown (facts/masters_proof.h) */
	bool is_round_robin; /* gradients were dealt out (round_robin_gradients) */

	int64_t step; /* UNS_UNKNOWN when not known, all of these */
	int64_t world_size;
	bool finished; /* the file that the writer writes last is there: the save has ended */
	bool overwritten; /* and some shard is newer: unless that was long ago, another save is going on, */
	bool weights_overwritten; /* and has reached the weights, but may not have written all of them */
	const char *units; /* "assumed: ..", "imported: ..": the origin of the unit map of an optimizer's flat units,
			      which no file of the checkpoint contains; NULL = there are no flat units */
};

struct uns_catalog {
	struct uns_arena arena;
	const char *path; /* the checkpoint's directory (or file) below its root; messages name it */
	struct uns_summary summary;

	struct uns_file *files;
	size_t n_files, cap_files;
	struct uns_tensor *tensors;
	size_t n_tensors, cap_tensors;
	struct uns_piece *pieces;
	size_t n_pieces, cap_pieces;
	struct uns_group *groups;
	size_t n_groups, cap_groups;
	struct uns_named_value *values;
	size_t n_values, cap_values;
	struct uns_companion *companions;
	size_t n_companions, cap_companions;
	struct uns_finding *findings; /* what is wrong with it, and notes; in order of being found */
	size_t n_findings, cap_findings;

	/* Of how many checkpoints its weights are the mean (session/means.c), and "the mean of A, B". 0, NULL = they
	 * are its own. */
	unsigned n_averaged;
	const char *averaged;

	/* Where the stats of files come from; NULL = from the files themselves. The caller of a format's open sets it,
	 * for as long as files are added. */
	struct uns_capture *capture;

	/* Private to model/catalog.c and pack_pieces.c: of the first n_proven tensors, whether its pieces were proven
	 * to hold each element once before the catalog was sealed. */
	bool *proven;
	size_t n_proven, cap_proven;
	size_t n_populated; /* pieces for which there is memory */

	/* Private to model/catalog.c: arrays grow by realloc until seal moves them into the arena. */
	bool sealed;
	struct uns_tensor *own_tensors; /* of a sealed catalog: those that it was sealed with, which stay */
	struct uns_map file_by_path; /* "ROOT path" -> index + 1 */
	struct uns_box_pool boxes;
};

/* -- building: formats only. All return -ENOMEM if memory is out, also if an earlier allocation in cat->arena failed:
 * a text or array of the arena that is only added to the catalog needs no check of its own. *_add give the new
 * index. -- */

int uns_catalog_new(const char *path, struct uns_catalog **out, struct uns_err *err);
void uns_catalog_free(struct uns_catalog *cat);

/* Stat and list a file (once per root and path: the same index comes back). A file that is not there becomes missing =
 * true; other errors are returned. What the catalog's capture has seen is not looked at again. */
int uns_catalog_add_file(struct uns_catalog *cat, const struct uns_root *root, const char *path, uint32_t *out,
			 struct uns_err *err);

/* The tensor's pieces must be added right behind it: uns_catalog_add_piece appends to the last
 * tensor, and copies the box. Strings and strides are borrowed: put them in cat->arena. */
int uns_catalog_add_tensor(struct uns_catalog *cat, const struct uns_tensor *tensor, uint32_t *out,
			   struct uns_err *err);
int uns_catalog_add_piece(struct uns_catalog *cat, const struct uns_piece *piece, struct uns_err *err);
/* The same for many pieces at once. First, before any tensor is added: room for n of them. Then n more of the last
 * tensor's, zeroed, for the caller to fill in: boxes are the caller's to keep (uns_box_keep). */
int uns_catalog_expect_pieces(struct uns_catalog *cat, size_t n, struct uns_err *err);
struct uns_piece *uns_catalog_extend(struct uns_catalog *cat, size_t n);
/* The next tensor for which nothing was noted: whether all that seal and uns_cover_check ask of its pieces has been
 * asked, in this order. */
int uns_catalog_note(struct uns_catalog *cat, bool is_proven, struct uns_err *err);
int uns_catalog_add_group(struct uns_catalog *cat, const struct uns_group *group, struct uns_err *err);
int uns_catalog_add_value(struct uns_catalog *cat, const struct uns_named_value *value, struct uns_err *err);
int uns_catalog_add_companion(struct uns_catalog *cat, const char *name, uint32_t file, bool shard,
			      struct uns_err *err);
/* Adds a copy of another catalog's tensor, with all its pieces and their files, as role OTHER. The copy is stored: no
 * alias. Also behind seal; pointers to tensors and pieces are void then. */
int uns_catalog_take_tensor(struct uns_catalog *cat, const struct uns_catalog *from, const struct uns_tensor *tensor,
			    uint32_t *out, struct uns_err *err);
/* Give `group` (index into groups) and `position` to every tensor that has none and whose name a group
 * lists: weights by any group, optimizer tensors by a group of their own root. */
int uns_catalog_assign_groups(struct uns_catalog *cat, struct uns_err *err);

/* What seal will demand of a piece, for formats that would rather make a problem of it: box or range inside the shape,
 * the extent as long as its elements need. The shape must have been checked. -EBADMSG without the tensor's name. */
int uns_piece_check(const struct uns_shape *shape, enum uns_dtype dtype, const struct uns_piece *piece,
		    struct uns_err *err);
/* Its file is there, and long enough. */
static inline bool uns_piece_is_there(const struct uns_catalog *cat, const struct uns_piece *piece)
{
	const struct uns_file *file = &cat->files[piece->file];

	return !file->missing && file->stat.kind == UNS_KIND_FILE &&
	       uns_inside(piece->offset_bytes, piece->length_bytes, file->stat.id.size);
}
uint64_t uns_piece_elems(const struct uns_piece *piece);
static inline const struct uns_item_part *uns_piece_part(const struct uns_piece *piece)
{
	return piece->container == UNS_TORCH_ITEM ? piece->part : NULL;
}
/* Whether its elements lie there in another order than C's, or with gaps; an item's strides are in its header only. */
static inline bool uns_piece_is_strided(const struct uns_piece *piece)
{
	return piece->container == UNS_RAW && piece->stride_elems;
}
/* The flat (C order) index of the piece's first element in its tensor. */
uint64_t uns_piece_first(const struct uns_shape *shape, const struct uns_piece *piece);

/* A copy of the finding, of this checkpoint unless it names another. */
int uns_catalog_add_finding(struct uns_catalog *cat, const struct uns_finding *f, struct uns_err *err);

/* Fail because of what is found out about this catalog's checkpoint (uns_fail_with). */
__attribute__((cold)) int uns_catalog_fail(const struct uns_catalog *cat, const struct uns_finding *f,
					   struct uns_err *err);

/* UNS_ADD_FINDING(cat, err, SHARD_MISSING, .file = path) and UNS_CATALOG_FAIL(cat, err, SHARD_MISSING, .file = path):
 * the same two for a finding that is written here. "return UNS_ADD_FINDING(..)" ends the function with it,
 * "UNS_TRY(UNS_ADD_FINDING(..))" continues. */
#define UNS_ADD_FINDING(cat, err, ...)  uns_catalog_add_finding((cat), UNS_FINDING(.id = UNS_FOUND_##__VA_ARGS__), (err))
#define UNS_CATALOG_FAIL(cat, err, ...) uns_catalog_fail((cat), UNS_FINDING(.id = UNS_FOUND_##__VA_ARGS__), (err))

/* A part of the checkpoint could not be read, because of `why` (why->keep may be the catalog's arena). What
 * is wrong with the files becomes a finding with this scope, and 0 comes back: the rest is served. What is
 * wrong with the moment (EIO, EMFILE, EACCES, memory, a file that changed under us) fails. */
int uns_catalog_problem_or_fail(struct uns_catalog *cat, enum uns_scope scope, const struct uns_err *why,
				struct uns_err *err);

/* Check what every reader relies on: shapes do not overflow, boxes and ranges lie inside their tensors, raw extents are
 * as long as their elements need; sort each tensor's pieces by position, and among replicas those whose bytes exist
 * first. After this the catalog is const. -EBADMSG names tensor and file. */
int uns_catalog_seal(struct uns_catalog *cat, struct uns_err *err);

/* -- reading -- */

/* Its pieces hold each element once, and their bytes are there: uns_cover_check need not find it out again. */
static inline bool uns_catalog_is_proven(const struct uns_catalog *cat, const struct uns_tensor *tensor)
{
	return tensor >= cat->tensors && tensor < cat->tensors + cat->n_proven && cat->proven[tensor - cat->tensors];
}

/* By role and name; NULL when absent. O(n): build a map where it matters. */
const struct uns_tensor *uns_catalog_find(const struct uns_catalog *cat, enum uns_role role, const char *name);
const struct uns_companion *uns_catalog_companion(const struct uns_catalog *cat, const char *name);
/* Whose bytes are the tensor's: those of another for an alias without bytes of its own. */
static inline const struct uns_tensor *uns_tensor_with_bytes(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	return t->n_pieces || t->alias_of == UNS_NONE ? t : &cat->tensors[t->alias_of];
}
/* The tensor's own pieces, n_pieces of them: none where it is an alias without bytes of its own. */
static inline const struct uns_piece *uns_tensor_pieces(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	return t->own ? t->own : cat->pieces + t->first_piece;
}
/* Is it made of blocks (model/block_tensor.h), and has elements? */
/* How many stretches a slice consists of: 1 = it is contiguous. */
static inline uint64_t uns_slice_stretches(const struct uns_slice *slice)
{
	uint64_t n = 1;
	unsigned i;

	for (i = 0; i < UNS_SLICE_LOOPS; i++)
		n *= slice->loop[i].n ? slice->loop[i].n : 1;
	return n;
}
static inline bool uns_tensor_is_of_blocks(const struct uns_tensor *t)
{
	return t->own && t->n_pieces && t->own->container == UNS_BLOCK;
}
/* The value that was saved under this root and name. */
const struct uns_value *uns_catalog_value(const struct uns_catalog *cat, const char *root, const char *name);
bool uns_role_is_optimizer(enum uns_role role); /* MASTER .. OPTIM_OTHER */
bool uns_role_is_model(enum uns_role role); /* WEIGHT, BUFFER: what a model's state dict holds */
const char *uns_role_text(enum uns_role role);
const char *uns_tensor_state(const struct uns_tensor *t); /* an optimizer's: "exp_avg" */
/* Of an optimizer's state by its name in torch: "exp_avg", "exp_avg_sq", "step"; OPTIM_OTHER for others. */
enum uns_role uns_role_of_state(const char *state);

#endif
