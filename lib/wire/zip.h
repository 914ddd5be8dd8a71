/* Zip archives as torch.save writes them: stored records, found by the central directory only.
 *
 *   [local header 30 | name | extra ("FB" + padding to 64) | data | descriptor 16 or 24]*
 *   [central directory: 46 | name | extra (zip64: sizes, offset)]*
 *   [zip64 end 56][zip64 locator 20][end 22]
 *
 * torch writes sizes and CRC as 0 in local headers (they follow in a data descriptor): sizes come
 * from the central directory, the data's start from the local header (its extra differs).
 * Source: torch 2.0-2.13 files; caffe2/serialize/inline_container.cc, miniz. */
#ifndef UNS_WIRE_ZIP_H
#define UNS_WIRE_ZIP_H

#include "base/arena.h"
#include "base/error.h"
#include "base/reader.h"
#include "base/span.h"

struct uns_zip_record {
	const char *name;      /* full, "archive/data/0"; NUL-terminated */
	uint64_t header_bytes; /* offset of the local header in the archive */
	uint64_t limit_bytes;  /* where the next record or the directory starts: this record ends at or before it */
	uint64_t size_bytes;   /* of the stored data */
	uint32_t crc32;        /* 0 where the writer did not compute it */
	uint16_t method;       /* 0 = stored; anything else is refused by uns_zip_data */
};

struct uns_zip {
	struct uns_zip_record *v; /* in central-directory order; overlapping records are refused */
	size_t n;
	const char *prefix; /* "archive/" : the directory all records share, or "" */
	const struct uns_zip_record **by_name; /* sorted; names are unique */
};

/* Read the end records and the central directory of the archive that fills `r`. -EBADMSG with what is wrong. I/O: one
 * read of the last 2 KiB; a second one for a larger directory, or for an archive that ends in a comment. Records'
 * extents are checked to lie before the directory. */
int uns_zip_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_zip *out, struct uns_err *err);

/* The record called prefix + name, or NULL. O(log n). */
const struct uns_zip_record *uns_zip_find(const struct uns_zip *zip, const char *name);

/* The archive's first bytes, moved on to the data of its first record: false unless that is PREFIX/name, and
 * stored. Its local header does not record its length. */
bool uns_zip_first(struct uns_span *head, const char *name);

/* Where the record's data starts in the archive: reads the 30-byte local header and the name behind
 * it. Checks signature, name, that [start, start+size) ends before the next record, and that it is
 * stored (-ENOTSUP if deflated). */
int uns_zip_data(const struct uns_reader *r, const struct uns_zip_record *record, uint64_t *start_bytes,
		 struct uns_err *err);

/* A small record's bytes, into the arena, in one read; its CRC is checked where one is recorded.
 * -ENOTSUP when it is larger than max_bytes. */
int uns_zip_read(const struct uns_reader *r, const struct uns_zip_record *record, uint64_t max_bytes,
		 struct uns_arena *arena, struct uns_span *out, struct uns_err *err);

#endif
