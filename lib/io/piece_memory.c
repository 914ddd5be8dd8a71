/* Parts of several pieces, so that few mappings are looked through. */
#include "io/piece_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/array.h"

enum { PART_BYTES = 2 << 20, PIECES = PART_BYTES / UNS_PIECE_BYTES, ALL = (1 << PIECES) - 1 };

struct uns_piece_part {
	uint8_t *bytes;
	unsigned used; /* a bit for each piece */
};

/* No huge pages are asked for: where memory is full of files' pages, as it is when models are loaded, the kernel moves
 * pages about to make one, which was measured to take five times as long as to clear small ones. */
static uint8_t *part_map(void)
{
	uint8_t *at =
		mmap(NULL, PART_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void part_remove(struct uns_piece_memory *m, size_t i)
{
	munmap(m->part[i].bytes, PART_BYTES);
	m->part[i] = m->part[--m->n];
}

uint8_t *uns_piece_take(struct uns_piece_memory *m)
{
	struct uns_piece_part *p;
	size_t i, piece;

	for (i = 0; i < m->n && m->part[i].used == ALL; i++)
		;
	if (i == m->n) {
		if (!UNS_HEAP_ROOM(m->part, m->n, m->cap))
			return NULL;
		m->part[i] = (struct uns_piece_part){ .bytes = part_map() };
		if (!m->part[i].bytes)
			return NULL;
		m->n++;
	}
	p = &m->part[i];
	piece = (size_t)__builtin_ctz(~p->used);
	p->used |= 1U << piece;
	return p->bytes + piece * UNS_PIECE_BYTES;
}

void uns_piece_give(struct uns_piece_memory *m, uint8_t *piece)
{
	size_t i = 0;

	while ((uintptr_t)piece - (uintptr_t)m->part[i].bytes >= PART_BYTES)
		i++;
	m->part[i].used &= ~(1U << (size_t)(piece - m->part[i].bytes) / UNS_PIECE_BYTES);
	if (!m->part[i].used && m->n * PART_BYTES > m->most_bytes)
		part_remove(m, i);
}

void uns_piece_memory_rest(struct uns_piece_memory *m)
{
	size_t i;

	for (i = m->n; i-- > 0;)
		if (!m->part[i].used)
			part_remove(m, i);
}

size_t uns_piece_memory_bytes(const struct uns_piece_memory *m)
{
	return m->n * PART_BYTES;
}

void uns_piece_memory_fini(struct uns_piece_memory *m)
{
	uns_piece_memory_rest(m);
	free(m->part);
}
