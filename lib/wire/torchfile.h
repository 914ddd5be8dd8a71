/* A torch.save file (or one DCP item, which is the same): a zip whose data.pkl describes values and
 * tensors, and whose data/N records are the storages. */
#ifndef UNS_WIRE_TORCHFILE_H
#define UNS_WIRE_TORCHFILE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/reader.h"
#include "wire/dtype.h"
#include "wire/pickle.h"
#include "wire/value.h"
#include "wire/zip.h"

struct uns_torchfile {
	const struct uns_reader *r; /* borrowed */
	struct uns_zip zip;
	const struct uns_value *root;
	bool big_endian; /* the byteorder record has "big": tensors are refused (-ENOTSUP) */
};

/* Open and parse data.pkl (at most 256 MiB). All results live in the arena. */
int uns_torchfile_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_torchfile *out,
		       struct uns_err *err);
/* The same; also returns data.pkl's bytes and the sites of names in it (wire/pickle_rename.h). */
int uns_torchfile_open_traced(const struct uns_reader *r, struct uns_arena *arena, struct uns_torchfile *out,
			      struct uns_span *pickle, struct uns_pickle_trace *trace, struct uns_err *err);

/* Returns what the file holds from its first bytes alone: data.pkl is torch.save's first record. Returns false if that
 * is not complete, or not the first record. */
bool uns_torchfile_peek(struct uns_span head, struct uns_arena *arena, const struct uns_value **out);

/* Where one tensor's bytes are. */
struct uns_torch_tensor {
	enum uns_dtype dtype;
	size_t n_dims;
	uint64_t dims[UNS_MAX_DIMS];
	uint64_t stride_elems[UNS_MAX_DIMS];
	uint64_t first_elem;    /* storage offset */
	uint64_t data_bytes;    /* offset of the storage's first byte in the file */
	uint64_t storage_bytes; /* length of the storage record: every element lies inside (checked) */
	uint32_t crc32;         /* of the whole storage record; 0 = not recorded */
	const char *key;        /* "0": the storage; equal keys share bytes */
	bool contiguous;        /* C order without gaps (dims of size 1 do not count; empty is) */
};

/* true if v is a call of torch._utils._rebuild_tensor_v2 or _v3, or of _rebuild_parameter around one, or a
 * subclass that merely wraps one. */
bool uns_torch_is_tensor(const struct uns_value *v);

/* 0: its bytes are its values. -ENOTSUP: they mean something else, as those of a subclass and of a conjugated
 * tensor do; the sentence, which may follow on "is", names the class. -EBADMSG: v is no tensor. */
int uns_torch_readable(const struct uns_value *v, struct uns_err *err);

/* Where such a tensor's bytes are; reads one local header. */
int uns_torch_tensor(const struct uns_torchfile *file, const struct uns_value *v, struct uns_torch_tensor *out,
		     struct uns_err *err);

#endif
