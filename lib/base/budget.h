/* What one parse of a file of unknown origin may take: memory and steps in proportion to its input,
 * beside an allowance for what is small anyway. A file that asks for more is refused (-ENOTSUP). */
#ifndef UNS_BASE_BUDGET_H
#define UNS_BASE_BUDGET_H

#include <stddef.h>

enum { UNS_PARSE_BYTES_PER_BYTE = 8, UNS_PARSE_ALLOWANCE = 32 << 20, UNS_PARSE_STEPS = 1 << 18 };

static inline size_t uns_parse_budget(size_t input_bytes)
{
	return UNS_PARSE_ALLOWANCE + UNS_PARSE_BYTES_PER_BYTE * input_bytes;
}

/* How many items may be reached a second time, through values that an input holds once and names
 * often: a walk over the values visits them each time. */
static inline size_t uns_share_budget(size_t input_bytes)
{
	return UNS_PARSE_STEPS + UNS_PARSE_BYTES_PER_BYTE * input_bytes;
}

#endif
