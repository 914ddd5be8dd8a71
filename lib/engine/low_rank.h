/* A matrix plus times a product of two of few columns, rounded to a 16-bit dtype: what merging a LoRA is. */
#ifndef UNS_ENGINE_LOW_RANK_H
#define UNS_ENGINE_LOW_RANK_H

#include <stdbool.h>

#include "engine/sum_reader.h"
#include "model/sum_tensor.h"

/* Whether the tensor's sum is of that kind. */
bool uns_low_rank_is(const struct uns_catalog *cat, const struct uns_tensor *tensor);

/* As uns_sum_bytes, and the same bytes, several times as fast. The tensor is of that kind. */
int uns_low_rank_bytes(const struct uns_catalog *cat, const struct uns_tensor *tensor,
		       const struct uns_sum_reader *reader, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err);

#endif
