/* What can be told from the bytes of a checkpoint alone: every record of its torch files against
 * the CRC that the archive's directory recorded, every floating-point tensor for NaN and infinity,
 * and 16-bit weights against the fp32 copies that the optimizer trains. Each file is read once, in
 * order, in parallel; weights and their fp32 copies once more, side by side.
 *
 * What records no checksum cannot be told from damage: safetensors, .metadata, JSON. */
#ifndef UNS_ENGINE_VERIFY_H
#define UNS_ENGINE_VERIFY_H

#include "engine/engine.h"

enum uns_flaw_kind {
	UNS_FLAW_UNREADABLE, /* `text` says why */
	UNS_FLAW_RECORD,     /* a zip record's bytes do not have the CRC recorded for them */
	UNS_FLAW_NOT_FINITE,
	UNS_FLAW_MASTER, /* a weight is not its fp32 copy rounded to nearest even */
	UNS_FLAW_NO_CRC, /* records of the file have no CRC to be compared with */
};

struct uns_flaw {
	enum uns_flaw_kind kind;
	const struct uns_file *file; /* of the first element, for tensors */
	const char *text;            /* UNREADABLE */

	const char *record; /* RECORD: its name; NULL = the tensor's, in a compressed item */
	uint64_t at_bytes, len_bytes;
	uint32_t crc, expected_crc;

	/* NOT_FINITE, MASTER; of a RECORD the tensor is one that it holds, or NULL. */
	const struct uns_tensor *tensor; /* NULL = one that the catalog does not hold */
	const char *name;                /* its key */
	int32_t rank;                    /* of the first element's piece; -1 = not known */
	uint64_t first_elem;             /* flat (C order) index in the tensor */
	uint64_t n_elems;                /* of the tensor */
	uint64_t n_nan, n_inf;           /* NOT_FINITE */

	/* MASTER */
	uint64_t n_different;
	const struct uns_file *master_file; /* of the first one's fp32 copy */
	int32_t master_rank;
	double master, expected, found;
};

/* true = give up. Asked often, from one thread at a time. */
struct uns_verify_watch {
	bool (*asked)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

typedef int uns_flaw_visit(void *ctx, const struct uns_flaw *flaw);

/* Flaws in the order of files and tensors, after all was read; a visitor that returns non-zero ends
 * it with that value. watch may be NULL. Fails with -EINTR when told to give up, and with -ENOMEM;
 * what cannot be read is a flaw. Memory: half a MiB for each of the engine's threads, some 100
 * bytes for each record and piece, and the cache of decoded pieces. */
int uns_backing_verify(struct uns_backing *backing, const struct uns_verify_watch *watch,
		       uns_flaw_visit *visit, void *ctx, struct uns_err *err);

#endif
