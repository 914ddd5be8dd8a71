/* Bytes of elements that are made when they are read: converted to another dtype, or computed. */
#ifndef UNS_ENGINE_ELEMENTS_H
#define UNS_ENGINE_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct uns_elements {
	/* Writes n elements from `first` on. */
	int (*make)(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err);
	void *ctx;
	size_t elem_bytes; /* of what is made; 16 at most */
	size_t most; /* so many are made at a time, so that memory is bounded */
};

/* Bytes [off, off+len) of the elements. `off` and len need not be multiples of an element. */
int uns_elements_read(const struct uns_elements *e, uint8_t *dst, size_t len, uint64_t off, struct uns_err *err);

#endif
