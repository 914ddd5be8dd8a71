#include "model/box_pool.h"

#include <stdlib.h>

#include "base/hash.h"

enum { FIRST_SLOTS = 1 << 10, LAST_SLOTS = 1 << 16, NEIGHBOURS = 4 };

/* The slot that has an equal box, or else a free one; the first of them all if none is free. */
static const struct uns_box **slot_of(const struct uns_box_pool *pool, const struct uns_box *box)
{
	const struct uns_box **slot;
	uint64_t h = UNS_HASH_INIT;
	uint32_t d, i;

	for (d = 0; d < box->n; d++)
		h = (h ^ box->lo[d]) * 31 + box->len[d];
	h = uns_hash_end(h);
	for (i = 0; i < NEIGHBOURS; i++) {
		slot = &pool->seen[(h + i) % pool->n_slots];
		if (!*slot || uns_box_equal(*slot, box))
			return slot;
	}
	return &pool->seen[h % pool->n_slots];
}

/* Twice as many slots once half as many boxes were displaced. */
static bool make_slots(struct uns_box_pool *pool)
{
	struct uns_box_pool more = { .n_slots = pool->n_slots ? 2 * pool->n_slots : FIRST_SLOTS };
	size_t i;

	if (pool->n_slots && (pool->n_displaced < pool->n_slots / 2 || pool->n_slots == LAST_SLOTS))
		return true;
	more.seen = calloc(more.n_slots, sizeof(struct uns_box *));
	if (!more.seen)
		return false;
	for (i = 0; i < pool->n_slots; i++)
		if (pool->seen[i])
			*slot_of(&more, pool->seen[i]) = pool->seen[i];
	free(pool->seen);
	*pool = more;
	return true;
}

const struct uns_box *uns_box_keep(struct uns_box_pool *pool, struct uns_arena *arena, const struct uns_box *box)
{
	const struct uns_box **slot;
	struct uns_box *kept;

	if (!make_slots(pool))
		return NULL;
	slot = slot_of(pool, box);
	if (*slot && uns_box_equal(*slot, box))
		return *slot;
	pool->n_displaced += *slot != NULL;
	kept = UNS_NEW(arena, struct uns_box);
	if (!kept)
		return NULL;
	*kept = *box;
	return *slot = kept;
}

void uns_box_pool_fini(struct uns_box_pool *pool)
{
	free(pool->seen);
	*pool = (struct uns_box_pool){ 0 };
}
