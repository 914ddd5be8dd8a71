/* Reading the header of a zstd frame. */
#include "wire/zstd_frame.h"

enum { MAGIC_BYTES = 4 };
static const uint32_t MAGIC = 0xfd2fb528, SKIPPABLE = 0x184d2a50, SKIPPABLE_MASK = 0xfffffff0;

static bool take_le(struct uns_span *in, size_t n, uint64_t *out)
{
	const uint8_t *p;

	if (!uns_span_take(in, n, &p))
		return false;
	*out = uns_le(p, (unsigned)n);
	return true;
}

bool uns_zstd_window(struct uns_span in, uint64_t *window_bytes)
{
	static const uint8_t id_bytes[] = { 0, 1, 2, 4 }, size_bytes[] = { 1, 2, 4, 8 };
	uint64_t magic, base, unused;
	uint8_t descriptor, window;

	if (!take_le(&in, MAGIC_BYTES, &magic))
		return false;
	*window_bytes = 0;
	if ((magic & SKIPPABLE_MASK) == SKIPPABLE)
		return true;
	if (magic != MAGIC || !uns_take_u8(&in, &descriptor))
		return false;
	if (!(descriptor & 0x20)) {
		if (!uns_take_u8(&in, &window))
			return false;
		base = UINT64_C(1) << (10 + (window >> 3));
		*window_bytes = base + base / 8 * (window & 7);
		return true;
	}
	if (!take_le(&in, id_bytes[descriptor & 3], &unused))
		return false;
	if (!take_le(&in, size_bytes[descriptor >> 6], window_bytes))
		return false;
	*window_bytes += descriptor >> 6 == 1 ? 256 : 0; /* two bytes count from there on */
	return true;
}
