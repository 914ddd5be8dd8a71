/* Decoded pieces: in memory while the budget allows, else in unlinked temporary files, so that a
 * sequential pass decodes each piece once however small the memory is. Knows no pieces: an entry is
 * bytes under (owner, id). No lock is held while bytes are made, moved or freed. */
#ifndef UNS_ENGINE_CACHE_H
#define UNS_ENGINE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/reader.h"
#include "engine/counters.h"

struct uns_cache;
struct uns_cached;

struct uns_cache_limits {
	uint64_t mem_bytes;
	uint64_t spill_bytes;
	size_t spill_files; /* each spilled entry holds a descriptor */
};

/* dir: for spilled entries; NULL = $TMPDIR, /tmp. log: for what goes wrong there. */
int uns_cache_new(const struct uns_cache_limits *max, const char *dir, struct uns_counters *count,
		  const struct uns_log *log, struct uns_cache **out, struct uns_err *err);
void uns_cache_free(struct uns_cache *cache); /* nothing may be pinned or moving */
const char *uns_cache_dir(const struct uns_cache *cache); /* where it spills */

/* Which of an owner's entries: numbers that differ between any two; those not needed are 0. */
struct uns_cache_id {
	uint64_t v[7];
};

/* Makes the bytes with uns_cached_write or uns_cached_map, ends with uns_cached_settle. */
typedef int uns_cache_fill(void *ctx, struct uns_cached *entry, struct uns_err *err);

/* The entry, pinned; made by `fill` if it is not there, with room for size bytes. A request for an
 * entry that another thread is making waits for it. -ENOSPC names the directory when there is no
 * room at all. A thread must not hold one entry while it gets another. */
int uns_cache_get(struct uns_cache *cache, const void *owner, struct uns_cache_id id, uint64_t size,
		  uns_cache_fill *fill, void *ctx, struct uns_cached **out, struct uns_err *err);
void uns_cache_put(struct uns_cache *cache, struct uns_cached *entry); /* unpin */

/* Forget all entries of an owner; none may be pinned or being made. Never waits: an entry that is being
 * moved to a file is freed when that is done. Frees memory and closes temporary files, so that a caller
 * does better not to hold a lock that others need. */
void uns_cache_drop(struct uns_cache *cache, const void *owner);

/* While filling: offsets from the start of the room. */
int uns_cached_write(struct uns_cached *entry, const void *buf, size_t len, uint64_t off, struct uns_err *err);
/* All of the room as memory until settled; the pages of a spilled entry are those of its file. */
int uns_cached_map(struct uns_cached *entry, uint8_t **out, struct uns_err *err);
/* Only the room's first used_bytes are kept; content starts at base_bytes in it. */
void uns_cached_settle(struct uns_cached *entry, uint64_t base_bytes, uint64_t used_bytes);
/* It is dropped instead of being moved to a file if its last byte was read by then: making it again costs little. */
void uns_cached_once(struct uns_cached *entry);
/* What was written so far, as a reader with offsets from the start of the room. */
struct uns_reader uns_reader_of_cached(struct uns_cached *entry, uint64_t written_bytes);

/* Of a pinned entry: len bytes from byte `off` of its content. */
int uns_cached_read(struct uns_cached *entry, void *buf, size_t len, uint64_t off, struct uns_err *err);
/* The content in memory, or NULL when it is in a file. */
const uint8_t *uns_cached_bytes(const struct uns_cached *entry);

#endif
