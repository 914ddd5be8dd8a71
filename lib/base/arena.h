/* Memory that is released all at once: one arena per catalog, tree or parse.
 *
 * An arena remembers that an allocation failed, until uns_arena_fini. So a function checks a result that it uses
 * itself (UNS_TRY_ALLOC in base/error.h), and stores one that it only passes on: NULL then means "out of memory"
 * until something asks the arena (uns_arena_check). What is built in an arena asks it: catalogs in each uns_catalog_add
 * and uns_catalog_seal, trees in uns_vtree_add, layouts in uns_layout_build. A path or text from another arena that
 * is NULL fails them as well. */
#ifndef UNS_BASE_ARENA_H
#define UNS_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct uns_arena {
	struct uns_arena_block *head;
	size_t used_bytes; /* allocated so far: what a parser limits */
	size_t held_bytes; /* of the heap, for that: what an LRU counts */
	bool failed;       /* an allocation has failed */
};

#define UNS_ARENA_INIT ((struct uns_arena){ 0 })

/* Zeroed memory, 8-byte aligned; NULL when out of memory or n * size overflows.
 * n == 0 gives a valid pointer to nothing. */
void *uns_arena_alloc(struct uns_arena *arena, size_t n, size_t size);
#define UNS_NEW(arena, type)      ((type *)uns_arena_alloc((arena), 1, sizeof(type)))
#define UNS_NEW_N(arena, type, n) ((type *)uns_arena_alloc((arena), (n), sizeof(type)))

/* Copies of strings; the result ends in NUL. NULL when out of memory. The text of uns_arena_str may be NULL: then it
 * was itself the result of a failed allocation, and this one fails as well. */
char *uns_arena_str(struct uns_arena *arena, const char *text);
char *uns_arena_strn(struct uns_arena *arena, const char *text, size_t len);
__attribute__((format(printf, 2, 3))) char *uns_arena_printf(struct uns_arena *arena, const char *fmt, ...);
__attribute__((format(printf, 2, 0))) char *uns_arena_vprintf(struct uns_arena *arena, const char *fmt, va_list ap);

/* What realloc is for the heap: room for `cap` elements, into which the old `n` are copied. */
void *uns_arena_grow(struct uns_arena *arena, const void *old, size_t n, size_t cap, size_t size);

/* Release everything; the arena is empty and usable again. */
void uns_arena_fini(struct uns_arena *arena);

#endif
