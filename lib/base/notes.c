/* printf into an arena's array. */
#include "base/notes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/array.h"

int uns_note_add(struct uns_arena *arena, const char ***v, size_t *n, size_t *cap, const char *fmt,
		 ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!uns_array_room(arena, (void **)v, *n, cap, sizeof(**v)))
		return -ENOMEM;
	(*v)[*n] = uns_arena_str(arena, text);
	return (*v)[(*n)++] ? 0 : -ENOMEM;
}
