/* Whole elements are made where they are wanted. One that is cut, at either end, is made beside it. */
#include "engine/elements.h"

#include <string.h>

#include "base/checked.h"

int uns_elements_read(const struct uns_elements *e, uint8_t *dst, size_t len, uint64_t off, struct uns_err *err)
{
	uint8_t one[16];
	size_t done, skip, n, bytes;
	uint64_t first;

	for (done = 0; done < len; done += bytes) {
		first = (off + done) / e->elem_bytes;
		skip = (size_t)((off + done) % e->elem_bytes);
		n = skip ? 0 : (size_t)uns_u64_min((len - done) / e->elem_bytes, e->most);
		bytes = n * e->elem_bytes;
		if (n) {
			UNS_TRY(e->make(e->ctx, first, n, dst + done, err));
			continue;
		}
		UNS_TRY(e->make(e->ctx, first, 1, one, err));
		bytes = (size_t)uns_u64_min(e->elem_bytes - skip, len - done);
		memcpy(dst + done, one + skip, bytes);
	}
	return 0;
}
