/* Bytes of objects that were fetched lately, and those that readers will want next.
 *
 * An object is cut into blocks of 8 MiB, and a block into pieces of 256 KiB. A read of bytes that are not here fetches
 * their pieces. A caller that knows what will be read calls uns_blocks_will_read: threads fetch that, in
 * requests of up to a block. For other readers there is a guess: if the pieces before what is read are here, or are
 * being fetched, the object is read from front to back. Then one request fetches the rest of the block, and threads
 * fetch the next blocks.
 *
 * Pieces are fetched once, however many threads wait for them; all of these get a failure, and it is not kept. Pieces
 * that readers have passed make room for others, one by one: a view has tensors in another order than a shard, and what
 * lies between those that were read is still to come. Of them few are kept, so that the same memory is used again. If
 * there are none, blocks go that were not used for the longest time.
 *
 * Threads: any number. */
#ifndef UNS_IO_OBJECT_BLOCKS_H
#define UNS_IO_OBJECT_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "io/piece_memory.h"

enum {
	UNS_BLOCK_BYTES = 8 << 20,
	UNS_BLOCK_PIECE_BYTES = UNS_PIECE_BYTES,
	/* Of one source. Beyond that there is only what readers wait for. */
	UNS_BLOCKS_BYTES = 256 << 20,
	UNS_BLOCKS_READ_BYTES = 160 << 20, /* where there is more, what was read goes */
	UNS_BLOCKS_AHEAD = 8, /* of one object, by a guess */
	UNS_BLOCKS_THREADS = 24,
};

/* Where bytes of an object from `off` on come from, as many as `into` holds, with a sentence if they do not. -ESTALE:
 * the object is not the one with this ETag any more. */
struct uns_block_store {
	int (*fetch)(void *ctx, const char *key, const char *etag, const struct iovec *into, size_t n_into,
		     uint64_t off, struct uns_err *err);
	void (*release)(void *ctx); /* nothing is fetched any more */
	void *ctx;
};

struct uns_blocks;
struct uns_block_object; /* one that is open, or has blocks */

/* Releases the store also if it fails. Threads are started on first use, so that a process may fork after this. */
int uns_blocks_new(const struct uns_block_store *store, struct uns_blocks **out, struct uns_err *err);
/* No object is open. Waits a second for requests under way; later ones end by themselves. NULL is allowed. */
void uns_blocks_free(struct uns_blocks *blocks);

/* Objects of the same key, ETag and size have the same blocks. */
int uns_blocks_open(struct uns_blocks *blocks, const char *key, const char *etag, uint64_t size,
		    struct uns_block_object **out, struct uns_err *err);
void uns_blocks_close(struct uns_block_object *object); /* NULL is allowed; its blocks stay */

/* Bytes that the object has. Fails as the store does. After one -ESTALE no block of the object is used. */
int uns_blocks_read(struct uns_block_object *object, void *buf, size_t len, uint64_t off, struct uns_err *err);

/* Bytes [at, end) of the object will be read, after those of earlier calls. Never waits. More than UNS_BLOCKS_BYTES are
 * not kept: to ask for less at a time is the caller's part. */
void uns_blocks_will_read(struct uns_block_object *object, uint64_t at, uint64_t end);

/* Nothing has been read for a while: what is not being read is forgotten, and its memory goes back to the system. */
void uns_blocks_rest(struct uns_blocks *blocks);

#endif
