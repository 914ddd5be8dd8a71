/* What is to be read of each file to verify it, and what was seen there.
 *
 * Of a file the plan knows its records (stretches with a CRC), its spans (stretches of elements), and its areas: what
 * has to be read to see all of these. Pieces that must be decoded first, and compressed objects, are listed apart. */
#ifndef UNS_VERIFY_PLAN_H
#define UNS_VERIFY_PLAN_H

#include <pthread.h>

#include "engine/backing.h"
#include "verify/nonfinite.h"

/* Stretches of one file are read by different threads; blocks are what one has in memory. */
enum { UNS_VERIFY_BLOCK_BYTES = 512 << 10 };
#define UNS_VERIFY_STRETCH_BYTES (UINT64_C(32) << 20)

/* What a torch file that is passed through holds, by its keys and dtypes. */
enum uns_object {
	UNS_OBJECT_UNKNOWN,
	UNS_OBJECT_OPTIMIZER,
	UNS_OBJECT_SCHEDULER,
	UNS_OBJECT_RNG,
	UNS_OBJECT_TENSOR,  /* one of floats: torch keeps random states as bytes */
	UNS_OBJECT_WEIGHTS, /* such tensors by name, and nothing else */
};

/* The data of a zip record. */
struct uns_verify_record {
	const char *name;
	uint64_t at, len; /* in the file */
	uint32_t expected, crc;
	bool unread; /* not all of it could be read */
};

/* Elements of one tensor that lie one behind the other in a file. */
struct uns_verify_span {
	uint64_t at, len; /* bytes in the file */
	enum uns_dtype dtype;
	const char *name;              /* NULL = the piece's tensor's */
	const struct uns_piece *piece; /* NULL = of a tensor that the catalog does not hold */
	struct uns_nonfinite seen;     /* elements of the piece, or of the tensor without one */
};

/* A piece that is decoded first: compressed, or with gaps. */
struct uns_verify_decoded {
	const struct uns_tensor *tensor;
	const struct uns_piece *piece;
	struct uns_nonfinite seen;
	uint32_t crc, expected; /* of its dense bytes; 0 = not recorded */
};

struct uns_verify_area {
	uint64_t at, len;
};

struct uns_verify_file {
	struct uns_arena arena;
	struct uns_verify_record *record; /* by position; they do not overlap */
	size_t n_records, cap_records, n_without_crc;
	struct uns_verify_span *span; /* by position; tied tensors' overlap */
	size_t n_spans, cap_spans;
	uint64_t *reach; /* the furthest end of spans 0 .. i */
	struct uns_verify_decoded *decoded;
	size_t n_decoded, cap_decoded;
	const struct uns_named_value **value; /* compressed objects */
	size_t n_values, cap_values;
	struct uns_verify_area *area; /* stretches that hold all of these, small gaps included */
	size_t n_areas;
	const char *saved_as; /* of an archive: what torch called the file; NULL = not known */
	enum uns_object holds;
	const struct uns_piece *first_piece; /* the catalog's; NULL = it has none of the file */
	const struct uns_tensor *first_tensor;
	size_t n_pieces;
	bool is_unchecked;    /* no byte of it has a CRC */
	_Atomic uint64_t end; /* behind its last byte that is not zero; while reading */
	const char **unreadable; /* why it cannot be read; guarded by the verification's lock while reading */
	size_t n_unreadable, cap_unreadable;
};

/* What the catalog's tensors have in each file. */
struct uns_verify_where {
	struct uns_verify_use {
		uint32_t tensor, piece;
	} *use;           /* by file */
	size_t *first_use; /* of each file, and one more */
};

int uns_verify_where(const struct uns_catalog *cat, struct uns_verify_where *out, struct uns_err *err);
void uns_verify_where_fini(struct uns_verify_where *where);

/* Read the directories and headers of one file. Fails with -ENOMEM only; any other failure is noted
 * with the file as unreadable. */
int uns_verify_plan(struct uns_backing *b, const struct uns_verify_where *where, uint32_t file,
		    struct uns_verify_file *out, struct uns_err *err);

/* Adds one more sentence, unless it is there already. If memory is out, the file's arena remembers that. */
void uns_verify_unreadable(struct uns_verify_file *f, const char *text);

#endif
