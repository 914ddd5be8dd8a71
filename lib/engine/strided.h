/* A strided tensor's elements in C order. */
#ifndef UNS_ENGINE_STRIDED_H
#define UNS_ENGINE_STRIDED_H

#include "base/reader.h"
#include "wire/dtype.h"

struct uns_strided {
	uint32_t n;
	uint64_t len[UNS_MAX_DIMS], stride_elems[UNS_MAX_DIMS];
	uint64_t elem_bytes;
	uint64_t first_bytes; /* offset of element [0, 0, ...] in the reader */
};

/* dst has room for all elements. Reads in ascending order, in windows of bounded size. */
int uns_strided_copy(const struct uns_strided *s, const struct uns_reader *r, uint8_t *dst, struct uns_err *err);

#endif
