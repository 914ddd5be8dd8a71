/* Is this text UTF-8? Parsers ask once, so that all later code may trust names; what is written as JSON
 * asks again. */
#ifndef UNS_BASE_UTF8_H
#define UNS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool uns_utf8_is_tail(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

/* Bytes of the sequence at p, of which `left` > 0 exist; 0 = not UTF-8. Only shortest forms count.
 * Lone surrogates are not UTF-8, but Python writes them into pickles: `surrogates` lets them pass. */
static inline size_t uns_utf8_len(const uint8_t *p, size_t left, bool surrogates)
{
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	if (p[0] < 0xe0)
		return left >= 2 && uns_utf8_is_tail(p[1]) ? 2 : 0;
	if (left < 3 || !uns_utf8_is_tail(p[1]) || !uns_utf8_is_tail(p[2]))
		return 0;
	if (p[0] < 0xf0) {
		if (p[0] == 0xe0 && p[1] < 0xa0)
			return 0;
		return p[0] == 0xed && p[1] >= 0xa0 && !surrogates ? 0 : 3;
	}
	if (left < 4 || !uns_utf8_is_tail(p[3]))
		return 0;
	if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return 4;
}

static inline bool uns_utf8_valid(const void *bytes, size_t len, bool surrogates)
{
	const uint8_t *p = bytes;
	size_t at = 0, step;

	for (; at < len; at += step) {
		step = uns_utf8_len(p + at, len - at, surrogates);
		if (!step)
			return false;
	}
	return true;
}

#endif
