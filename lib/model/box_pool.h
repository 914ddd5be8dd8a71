/* Boxes of many pieces: equal ones are kept once. Of a checkpoint of 512 ranks, hundreds of tensors are cut alike. */
#ifndef UNS_MODEL_BOX_POOL_H
#define UNS_MODEL_BOX_POOL_H

#include "base/arena.h"
#include "model/box.h"

/* Zeroed = empty. */
struct uns_box_pool {
	const struct uns_box **seen; /* by hash; a box may take the place of another, which may then be kept twice */
	size_t n_slots, n_displaced; /* displaced: boxes that lost their place since the slots became so many */
};

/* The box, or one that equals it, in the arena; NULL = out of memory. */
const struct uns_box *uns_box_keep(struct uns_box_pool *pool, struct uns_arena *arena, const struct uns_box *box);

/* What was kept stays in the arena. */
void uns_box_pool_fini(struct uns_box_pool *pool);

#endif
