/* Elements of a tensor that is a sum (model/sum_tensor.h), computed from what its terms' pieces hold. */
#ifndef UNS_ENGINE_SUM_H
#define UNS_ENGINE_SUM_H

#include "engine/sum_reader.h"
#include "model/sum_tensor.h"

/* Bytes [at, at+len) of a tensor whose sum is not NULL. Memory does not depend on the tensors' sizes. */
int uns_sum_bytes(const struct uns_catalog *cat, const struct uns_tensor *tensor, const struct uns_sum_reader *reader,
		  uint8_t *dst, uint64_t at, size_t len, struct uns_err *err);

#endif
