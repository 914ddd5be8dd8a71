/* The pieces of a snapshot counted and freed. */
#include "session/snapshot.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

void snapshot_free(struct snapshot *snap)
{
	struct shown *shown = snap->shown, *next;

	for (; shown; shown = next) {
		next = shown->next;
		uns_vtree_fini(&shown->tree);
		free(shown->attr);
		free(shown);
	}
	uns_backing_free(snap->backing);
	uns_catalog_free(snap->cat);
	uns_root_close(snap->model);
	training_found_fini(&snap->training);
	uns_arena_fini(&snap->ties.arena);
	uns_arena_fini(&snap->arena);
	free(snap);
}

size_t snapshot_bytes(const struct snapshot *snap)
{
	const struct shown *shown;
	size_t bytes = sizeof(*snap) + snap->arena.used_bytes;

	if (snap->cat)
		bytes += snap->cat->arena.used_bytes + snap->cat->n_pieces * 64;
	if (snap->ties_learned.known)
		bytes += snap->ties.arena.used_bytes;
	if (snap->training_learned.known)
		bytes += snap->training.arena.used_bytes;
	for (shown = snap->shown; shown; shown = shown->next)
		if (!shown->making)
			bytes += shown->tree.arena.used_bytes;
	return bytes;
}

int note_add(struct uns_arena *arena, const char ***note, size_t *n, size_t *cap, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!uns_array_room(arena, (void **)note, *n, cap, sizeof(**note)))
		return -ENOMEM;
	(*note)[*n] = uns_arena_str(arena, text);
	return (*note)[(*n)++] ? 0 : -ENOMEM;
}
