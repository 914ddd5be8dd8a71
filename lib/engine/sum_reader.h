/* What sums take their terms' elements from. */
#ifndef UNS_ENGINE_SUM_READER_H
#define UNS_ENGINE_SUM_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/catalog.h"

struct uns_backing;

struct uns_sum_reader {
	/* Bytes [at, at+len) of a tensor, in its own dtype. */
	int (*read)(void *ctx, const struct uns_tensor *tensor, uint8_t *dst, uint64_t at, size_t len,
		    struct uns_err *err);
	/* Are the files still those that these bytes were read of? -ESTALE if not. */
	int (*check)(void *ctx, const struct uns_tensor *tensor, uint64_t at, size_t len, struct uns_err *err);
	void *ctx;
	struct uns_backing *b; /* in whose cache stays what is made of a factor; NULL = nothing stays */
};

#endif
