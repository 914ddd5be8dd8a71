#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

enum { FIRST = 16 };

bool uns_array_room(struct uns_arena *arena, void **v, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? *cap * 2 : FIRST;
	void *grown;

	if (n < *cap)
		return true;
	if (*cap > SIZE_MAX / 2)
		return false;
	grown = arena ? uns_arena_grow(arena, *v, n, more, size) : reallocarray(*v, more, size);
	if (!grown)
		return false;
	*v = grown;
	*cap = more;
	return true;
}
