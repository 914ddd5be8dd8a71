/* A seal: what every file of one checkpoint held at one moment, and every piece in it. A text that sha256sum(1) checks
 * too, as it has that program's lines, and all else in lines that begin with '#', which that program ignores:
 *
 *     # unshard-seal 1                                  the version of this form
 *     # checkpoint checkpoint-2                         the last name of its path
 *     # made 1764000000                                 Unix time, seconds
 *     <SHA-256>  pytorch_model_fsdp_0/__0_0.distcp      relative to the checkpoint, in order of bytes
 *     #file 4096 1764000000123456789 <16 digits> weights        bytes, mtime in ns, sample, scope
 *     #piece 0 1024 512 <CRC-32> 0:64,0:32 model.norm.weight    rank, offset, bytes, elements, tensor; by offset
 *     ...
 *     # end <SHA-256>                                   of all bytes before this line
 *
 * A rank that is not known is "-". Elements are a box, "first:count" of each dimension; flat elements, "first+count";
 * or ".", a scalar. In tensors' names, as sha256sum does in those of files, a backslash, a line feed and a carriage
 * return are "\\", "\n" and "\r". Only names hold other bytes than ASCII.
 *
 * Nothing in it depends on where the checkpoint is: no absolute path, no inode. */
#ifndef UNS_SEAL_SEAL_H
#define UNS_SEAL_SEAL_H

#include "base/sha256.h"
#include "base/span.h"
#include "base/text.h"
#include "model/finding.h"

enum { UNS_SEAL_SAMPLES = 16, UNS_SEAL_SAMPLE_BYTES = 4096 };
#define UNS_SEAL_MAX_BYTES (UINT64_C(256) << 20) /* of the text */

struct uns_seal_piece {
	const char *tensor; /* as the source calls it */
	const char *elements;
	int64_t rank; /* -1 = not known */
	uint64_t offset_bytes, length_bytes; /* as stored */
	uint32_t crc;
};

struct uns_seal_file {
	const char *name;
	uint64_t size_bytes;
	int64_t mtime_ns;
	/* A hash of 16 blocks of 4 KiB that are spread evenly over the file; of all of a smaller file. */
	uint64_t sample;
	/* What cannot be shown without it: UNS_SCOPE_WEIGHTS, _OPTIMIZER or _ALL. */
	enum uns_scope scope;
	uint8_t sha256[UNS_SHA256_BYTES];
	struct uns_seal_piece *piece; /* by offset */
	size_t n_pieces;
};

struct uns_seal {
	const char *checkpoint;
	int64_t made_s;
	struct uns_seal_file *file; /* by name, in order of bytes */
	size_t n_files;
};

/* Any bytes. Texts live in the arena. Fails with -ENOTSUP for a later version of the form, with -EBADMSG for anything
 * else that is no seal, or not all of one, or was changed. Costs a hash of the text. */
int uns_seal_parse(struct uns_span text, struct uns_arena *arena, struct uns_seal *out, struct uns_err *err);
/* out->failed: memory is out. */
void uns_seal_emit(const struct uns_seal *seal, struct uns_text *out);

/* By its name; NULL = none. O(log n). */
const struct uns_seal_file *uns_seal_find(const struct uns_seal *seal, const char *name);

#endif
