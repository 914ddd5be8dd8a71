/* Elements of a tensor that is scaled in blocks (model/scaled_tensor.h), computed from those of its matrix. */
#ifndef UNS_ENGINE_SCALED_H
#define UNS_ENGINE_SCALED_H

#include "engine/backing.h"
#include "model/scaled_tensor.h"

struct uns_scaled_reader {
	/* Bytes [at, at+len) of the matrix's elements, in their own dtype. */
	int (*read)(void *ctx, const struct uns_layout *matrix, uint8_t *dst, uint64_t at, size_t len,
		    struct uns_err *err);
	void *ctx;
};

/* Bytes [at, at+len) of a tensor whose `scaled` is not NULL. A row of blocks is measured when it is first touched, for
 * which all of its elements are read; its scales stay in the cache. Other memory does not depend on the number of rows.
 */
int uns_scaled_bytes(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_scaled_reader *reader,
		     uint8_t *dst, uint64_t at, size_t len, struct uns_err *err);

#endif
