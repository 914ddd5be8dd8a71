/* safetensors headers, both directions.
 *
 *   [8 bytes: header length N, little endian][N bytes: JSON, space padded][data]
 *
 * {"__metadata__":{"format":"pt"},"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
 * Source: safetensors 0.8 (README "Format"); save_pretrained's order observed on its files. */
#ifndef UNS_WIRE_SAFETENSORS_H
#define UNS_WIRE_SAFETENSORS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/reader.h"
#include "wire/dtype.h"

struct uns_st_entry {
	const char *name;
	enum uns_dtype dtype;
	size_t n_dims;
	uint64_t dims[UNS_MAX_DIMS];
	uint64_t begin_bytes, end_bytes; /* relative to the data's start */
	const void *of; /* the caller's: to find what the entry is of after it was sorted */
};

struct uns_st_header {
	struct uns_st_entry *v; /* in file order of begin_bytes */
	size_t n;
	uint64_t data_bytes;         /* offset of the data in the file: 8 + N */
	const char **meta_key, **meta_value; /* __metadata__, strings only */
	size_t n_meta;
};

/* Reads 8 + N bytes (N <= 100 MB, the library's own limit). Checks what the library checks: offsets
 * in range, without holes or overlaps, size = product of shape times dtype. */
int uns_st_open(const struct uns_reader *r, struct uns_arena *arena, struct uns_st_header *out, struct uns_err *err);
const char *uns_st_meta(const struct uns_st_header *h, const char *key);

/* Sort entries as safetensors' save_file does (dtype descending, then name), assign offsets, and give the header's
 * bytes including the length word, padded so that data starts 8-aligned; the result is byte-identical to save_file's
 * with metadata {"format":"pt"}. Duplicate names are refused. Entries are changed in place. */
int uns_st_emit(struct uns_st_entry *v, size_t n, struct uns_arena *arena, struct uns_span *out,
		uint64_t *data_size_bytes, struct uns_err *err);

#endif
