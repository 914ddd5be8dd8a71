/* What the engine counts. Atomics: written from anywhere, read at any time. */
#ifndef UNS_ENGINE_COUNTERS_H
#define UNS_ENGINE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

struct uns_counters {
	_Atomic uint64_t source_reads, source_read_bytes, direct_read_bytes, ordered_read_bytes;
	_Atomic uint64_t items_resolved;
	_Atomic uint64_t decoded_pieces, decoded_bytes;
	_Atomic uint64_t stale, io_errors;
	_Atomic uint64_t crc_exact, crc_zero;             /* served: each tensor once as each type */
	_Atomic uint64_t crc_done_bytes, crc_total_bytes; /* read, or to be read, for CRCs alone */
	_Atomic uint64_t cache_bytes, spill_bytes, open_files; /* held now */
};

static inline void uns_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

#endif
