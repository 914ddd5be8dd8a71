/* Arrays that grow by doubling. Use:
 *
 *      if (!UNS_ARENA_ROOM(arena, x->v, x->n, x->cap))
 *              return uns_oom(err);
 *      x->v[x->n++] = ...; */
#ifndef UNS_BASE_ARRAY_H
#define UNS_BASE_ARRAY_H

#include <stdbool.h>

#include "base/arena.h"

/* Make room for one more element behind the first `n`. False = out of memory; the array is unchanged
 * then. UNS_HEAP_ROOM reallocates (free the array in the end); UNS_ARENA_ROOM copies into the arena. */
#define UNS_ARENA_ROOM(arena, v, n, cap) uns_array_room((arena), (void **)&(v), (n), &(cap), sizeof(*(v)))
#define UNS_HEAP_ROOM(v, n, cap)         uns_array_room(NULL, (void **)&(v), (n), &(cap), sizeof(*(v)))

bool uns_array_room(struct uns_arena *arena, void **v, size_t n, size_t *cap, size_t size);

#endif
