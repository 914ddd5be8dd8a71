/* Reads all data of a checkpoint and reports what is wrong with it: records of torch files that do not have the CRC
 * which the archive's directory recorded, floating-point tensors with NaN or infinity, and 16-bit weights that are not
 * the rounded fp32 copies which the optimizer trains. Files are read in parallel, each once and in order; weights and
 * their fp32 copies once more, side by side.
 *
 * safetensors, .metadata and JSON files record no checksum: damage that leaves them valid is not found, but for an end
 * of zeros, as an interrupted copy leaves it. */
#ifndef UNS_VERIFY_H
#define UNS_VERIFY_H

#include "engine/engine.h"

enum uns_flaw_kind {
	UNS_FLAW_UNREADABLE, /* `text` is the reason */
	UNS_FLAW_RECORD,     /* a zip record's bytes do not have the CRC recorded for them */
	UNS_FLAW_NOT_FINITE,
	UNS_FLAW_MASTER, /* a weight is not its fp32 copy rounded to nearest even */
	UNS_FLAW_NO_CRC, /* records of the file have no CRC to be compared with */
	UNS_FLAW_SAVED_AS, /* the file was saved under the name `record` */
	UNS_FLAW_OTHER_OBJECT, /* the file holds `record`, unlike its name */
	UNS_FLAW_EQUAL,    /* the file's records are those of master_file, which holds other elements */
	UNS_FLAW_ZEROS,    /* its last len_bytes are zeros, from the middle of `name` on, or in several tensors */
};

struct uns_flaw {
	enum uns_flaw_kind kind;
	const struct uns_file *file; /* of the first element, for tensors */
	const char *text;            /* UNREADABLE: of the first of its parts that cannot be read */
	size_t n_more;               /* UNREADABLE: that many parts more; one flaw for all of them */

	const char *record; /* RECORD: its name; NULL = the one of `tensor`, in a compressed item */
	uint64_t at_bytes, len_bytes;
	uint32_t crc, expected_crc;

	/* NOT_FINITE, MASTER: the tensor. RECORD: one that has elements in it, or NULL. */
	const struct uns_tensor *tensor; /* NULL = one that the catalog does not hold */
	const char *name;                /* its key */
	int32_t rank;                    /* of the first element's piece; -1 = not known */
	uint64_t first_elem;             /* flat (C order) index in the tensor */
	uint64_t n_elems;                /* of the tensor */
	uint64_t n_nan, n_inf;           /* NOT_FINITE */

	/* MASTER */
	uint64_t n_different;
	const struct uns_file *master_file; /* of the fp32 copy of the first different element */
	int32_t master_rank;
	double master, expected, found;
};

typedef int uns_flaw_visit(void *ctx, const struct uns_flaw *flaw);

/* Calls visit for each flaw, in the order of files and tensors, once everything was read. A visitor
 * that returns non-zero ends it with that value. watch may be NULL. Fails with -EINTR when watch
 * ends it, and with -ENOMEM; a file that cannot be read is a flaw. Memory: half a MiB for each of
 * the engine's threads, some 100 bytes for each record and piece, and the cache of decoded pieces. */
int uns_backing_verify(struct uns_backing *backing, const struct uns_verify_watch *watch, uns_flaw_visit *visit,
		       void *ctx, struct uns_err *err);

#endif
