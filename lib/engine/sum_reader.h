/* What sums take their terms' elements from. */
#ifndef UNS_ENGINE_SUM_READER_H
#define UNS_ENGINE_SUM_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/catalog.h"

struct uns_sum_reader {
	/* Bytes [at, at+len) of a tensor, in its own dtype. */
	int (*read)(void *ctx, const struct uns_tensor *tensor, uint8_t *dst, uint64_t at, size_t len,
		    struct uns_err *err);
	void *ctx;
};

#endif
