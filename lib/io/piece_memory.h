/* Memory for pieces of objects (object_blocks.h), all of one size. What was given back is used again: memory that is
 * new to a process costs more than the copy into it, because the kernel clears each page and enters it. It is taken
 * from the system in parts of several pieces.
 *
 * Threads: the caller's lock. */
#ifndef UNS_IO_PIECE_MEMORY_H
#define UNS_IO_PIECE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { UNS_PIECE_BYTES = 256 << 10 };

struct uns_piece_memory {
	struct uns_piece_part *part;
	size_t n, cap;
	size_t most_bytes; /* what is kept beyond that goes back to the system once it is not in use */
};

/* NULL = there is no memory. Its content is anything. */
uint8_t *uns_piece_take(struct uns_piece_memory *memory);
void uns_piece_give(struct uns_piece_memory *memory, uint8_t *piece);

/* What no piece is in use of goes back to the system. */
void uns_piece_memory_rest(struct uns_piece_memory *memory);
size_t uns_piece_memory_bytes(const struct uns_piece_memory *memory); /* in use or not */
void uns_piece_memory_fini(struct uns_piece_memory *memory);       /* no piece is in use */

#endif
