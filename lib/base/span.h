/* A bounded cursor over bytes. Parsers take spans, never files, and cannot overrun them.
 * Every take returns false at the end of input and leaves the span as it was; it advances on
 * success. */
#ifndef UNS_BASE_SPAN_H
#define UNS_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct uns_span {
	const uint8_t *p, *end;
};

static inline struct uns_span uns_span_of(const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	return (struct uns_span){ p, p + len };
}

static inline size_t uns_span_left(const struct uns_span *s)
{
	return (size_t)(s->end - s->p);
}

static inline bool uns_span_take(struct uns_span *s, size_t len, const uint8_t **out)
{
	if (uns_span_left(s) < len)
		return false;
	*out = s->p;
	s->p += len;
	return true;
}

static inline bool uns_span_skip(struct uns_span *s, size_t len)
{
	const uint8_t *unused;

	return uns_span_take(s, len, &unused);
}

static inline uint64_t uns_le(const uint8_t *p, unsigned n_bytes)
{
	uint64_t v = 0;
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static inline bool uns_take_u8(struct uns_span *s, uint8_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(s, 1, &p))
		return false;
	*out = *p;
	return true;
}

static inline bool uns_take_u16le(struct uns_span *s, uint16_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(s, 2, &p))
		return false;
	*out = (uint16_t)uns_le(p, 2);
	return true;
}

static inline bool uns_take_u32le(struct uns_span *s, uint32_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(s, 4, &p))
		return false;
	*out = (uint32_t)uns_le(p, 4);
	return true;
}

static inline bool uns_take_u64le(struct uns_span *s, uint64_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(s, 8, &p))
		return false;
	*out = uns_le(p, 8);
	return true;
}

#endif
