#include "model/box_pool.h"

#include <stdlib.h>

#include "base/hash.h"

enum { N_SLOTS = 4096 };

static size_t slot_of(const struct uns_box *box)
{
	uint64_t h = UNS_HASH_INIT;
	uint32_t d;

	for (d = 0; d < box->n; d++)
		h = (h ^ box->lo[d]) * 31 + box->len[d];
	return uns_hash_end(h) % N_SLOTS;
}

const struct uns_box *uns_box_keep(struct uns_box_pool *pool, struct uns_arena *arena, const struct uns_box *box)
{
	const struct uns_box **slot;
	struct uns_box *kept;

	if (!pool->seen)
		pool->seen = calloc(N_SLOTS, sizeof(struct uns_box *));
	if (!pool->seen)
		return NULL;
	slot = &pool->seen[slot_of(box)];
	if (*slot && uns_box_equal(*slot, box))
		return *slot;
	kept = UNS_NEW(arena, struct uns_box);
	if (!kept)
		return NULL;
	*kept = *box;
	return *slot = kept;
}

void uns_box_pool_fini(struct uns_box_pool *pool)
{
	free(pool->seen);
	*pool = (struct uns_box_pool){ NULL };
}
