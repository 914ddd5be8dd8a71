/* Elements of a joined tensor (model/joined_tensor.h) whose planes are put in order in memory. */
#ifndef UNS_ENGINE_JOINED_H
#define UNS_ENGINE_JOINED_H

#include "engine/backing.h"
#include "model/joined_tensor.h"

struct uns_joined_reader {
	/* Bytes [off, off+len) of the source. If one of its tensors must be decoded, it fails with UNS_MUST_DECODE
	 * (engine/reordered.h) unless it may do so. */
	int (*read)(void *ctx, bool may_decode, const struct uns_layout *source, void *buf, size_t len, uint64_t off,
		    struct uns_err *err);
	/* Are the files still those that bytes [from, end) of the source were read of? -ESTALE if not. */
	int (*check)(void *ctx, const struct uns_layout *source, uint64_t from, uint64_t end, struct uns_err *err);
	void *ctx;
};

/* Bytes [at, at+len) of a tensor whose `joined` is not in order. Each plane is read as a whole when it is first
 * touched, and stays in the cache. */
int uns_joined_bytes(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_joined_reader *reader,
		     uint8_t *dst, uint64_t at, size_t len, struct uns_err *err);

#endif
