/* A chain of malloc'd blocks, newest first. Large requests get a block of their own. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK = 512, LAST_BLOCK = 1 << 20, ALIGN = 8 };

struct uns_arena_block {
	struct uns_arena_block *next;
	size_t size, used;
	alignas(ALIGN) unsigned char bytes[];
};

static struct uns_arena_block *block_new(struct uns_arena *arena, size_t size, struct uns_arena_block *next)
{
	struct uns_arena_block *b = malloc(sizeof(*b) + size);

	if (!b)
		return NULL;
	b->next = next;
	b->size = size;
	b->used = 0;
	arena->held_bytes += sizeof(*b) + size;
	return b;
}

static struct uns_arena_block *block_with_room(struct uns_arena *arena, size_t need)
{
	struct uns_arena_block *head = arena->head;
	size_t size;

	if (head && head->size - head->used >= need)
		return head;
	size = head ? head->size * 2 : FIRST_BLOCK;
	if (size > LAST_BLOCK)
		size = LAST_BLOCK;
	if (need > size / 2 && head) { /* do not waste the rest of the current block */
		struct uns_arena_block *own = block_new(arena, need, head->next);

		if (own)
			head->next = own;
		return own;
	}
	head = block_new(arena, need > size ? need : size, head);
	if (head)
		arena->head = head;
	return head;
}

static void *alloc_failed(struct uns_arena *arena)
{
	arena->failed = true;
	return NULL;
}

/* Not zeroed. */
static void *arena_take(struct uns_arena *arena, size_t n, size_t size)
{
	struct uns_arena_block *b;
	size_t need;
	void *p;

	if (__builtin_mul_overflow(n, size, &need) || need > SIZE_MAX / 4)
		return alloc_failed(arena);
	need = (need + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	b = block_with_room(arena, need);
	if (!b)
		return alloc_failed(arena);
	p = b->bytes + b->used;
	b->used += need;
	arena->used_bytes += need;
	return p;
}

void *uns_arena_alloc(struct uns_arena *arena, size_t n, size_t size)
{
	void *p = arena_take(arena, n, size);

	return p ? memset(p, 0, n * size) : NULL;
}

char *uns_arena_strn(struct uns_arena *arena, const char *text, size_t len)
{
	char *copy = len < SIZE_MAX ? arena_take(arena, len + 1, 1) : alloc_failed(arena);

	if (!copy)
		return NULL;
	if (len)
		memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

char *uns_arena_str(struct uns_arena *arena, const char *text)
{
	return text ? uns_arena_strn(arena, text, strlen(text)) : alloc_failed(arena);
}

char *uns_arena_vprintf(struct uns_arena *arena, const char *fmt, va_list ap)
{
	char brief[256], *text;
	va_list again;
	int len;

	va_copy(again, ap);
	len = vsnprintf(brief, sizeof(brief), fmt, again);
	va_end(again);
	if (len < 0)
		return alloc_failed(arena);
	if ((size_t)len < sizeof(brief))
		return uns_arena_strn(arena, brief, (size_t)len);
	text = uns_arena_alloc(arena, (size_t)len + 1, 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, fmt, ap);
	return text;
}

char *uns_arena_printf(struct uns_arena *arena, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = uns_arena_vprintf(arena, fmt, ap);
	va_end(ap);
	return text;
}

void *uns_arena_grow(struct uns_arena *arena, const void *old, size_t n, size_t cap, size_t size)
{
	void *p = uns_arena_alloc(arena, cap, size);

	if (p && n)
		memcpy(p, old, n * size);
	return p;
}

void uns_arena_fini(struct uns_arena *arena)
{
	struct uns_arena_block *b = arena->head, *next;

	for (; b; b = next) {
		next = b->next;
		free(b);
	}
	*arena = UNS_ARENA_INIT;
}
