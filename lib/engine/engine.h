/* Bytes out of layouts. The engine is shared by all checkpoints: it owns the thread pool, the budget of descriptors and
 * the cache of decoded pieces. A backing is what it keeps for one catalog: descriptors and resolved item headers.
 *
 * Threads: everything but _new and _free may be called by any number of threads at once. No lock is held across I/O. */
#ifndef UNS_ENGINE_ENGINE_H
#define UNS_ENGINE_ENGINE_H

#include <sys/types.h>

#include "base/log.h"
#include "base/span.h"
#include "base/text.h"
#include "engine/ways.h"
#include "io/direct.h"
#include "model/layout.h"

struct uns_engine;
struct uns_backing;

struct uns_engine_options {
	uint64_t cache_bytes; /* decoded pieces in memory (half of `-o mem=`) */
	const char *cache_dir; /* where decoded pieces spill, as unlinked files; NULL = $TMPDIR, /tmp */
	uint64_t spill_bytes; /* at most this much spilled (`-o cache_size=`) */
	unsigned n_threads; /* of the pool; 0 = a default for storage that waits */
	unsigned max_open_files; /* 0 = most of RLIMIT_NOFILE */
	uint64_t window_bytes; /* windows of zstd frames that are being decoded, in sum (half of `-o mem=`); */
	/* 8 MiB at least */
	uint64_t ahead_bytes; /* how far storage is asked ahead of all sequential readers, in sum; 0 = never. Less if
				 memory is short */
	unsigned ahead_storages; /* that threads ask at once, if they may let one wait (ahead.h); 0 = the reader's
				    thread asks */
	enum uns_way way; /* by which files are read that a program opened (streams.h) */
	bool finds_way; /* find that out, for each storage */
	bool keeps_pages; /* of those that go through the page cache */
	struct uns_ways_memory ways;
	unsigned delay_read_us; /* tests: added to every read of a source file */
	const struct uns_log *log; /* must outlive the engine; NULL = no log */
};

struct uns_engine_stats {
	uint64_t source_reads, source_read_bytes; /* preads of source files */
	uint64_t direct_read_bytes; /* of these, past the page cache */
	uint64_t ordered_read_bytes; /* of these, one read of a shard at a time */
	uint64_t items_resolved;
	uint64_t decoded_pieces, decoded_bytes; /* decompressed or de-strided; each counts again */
	uint64_t cache_bytes, spill_bytes; /* held now */
	uint64_t stale, io_errors;
	uint64_t open_files;
	uint64_t crc_exact, crc_zero; /* CRCs served: known ones, and those left 0 */
	uint64_t crc_done_bytes, crc_total_bytes; /* read for CRCs alone, of what is to be read */
};

int uns_engine_new(const struct uns_engine_options *options, struct uns_engine **out, struct uns_err *err);
void uns_engine_free(struct uns_engine *engine);
/* Its threads, for other work that waits on storage. */
struct uns_pool *uns_engine_pool(const struct uns_engine *engine);
const char *uns_engine_cache_dir(const struct uns_engine *engine); /* the default one, too */
void uns_engine_stats(const struct uns_engine *engine, struct uns_engine_stats *out);
/* Which storages are read in which way, as far as that was found out. If it was named, it holds for all: one, `dev`. */
size_t uns_engine_ways(struct uns_engine *engine, uint64_t dev, struct uns_way_of out[UNS_WAYS_STORAGES]);

/* The catalog must outlive the backing. */
int uns_backing_new(struct uns_engine *engine, const struct uns_catalog *cat, struct uns_backing **out,
		    struct uns_err *err);
/* No read may be in progress. Never waits for another thread, but closes files: hold no lock that others need. */
void uns_backing_free(struct uns_backing *backing);
/* Another snapshot has come in its place: on file systems that are not this kernel's alone its descriptors are closed,
 * those of reads in progress with their reads. A program there may have kept parts of a file for as long as it is open,
 * and would give them to a reader that opens the file that has its name now. Reads in progress open files again. Closes
 * files: hold no lock. */
void uns_backing_let_go(struct uns_backing *backing);
/* Memory that it took when it was made, in bytes; what is found out while files are read comes on top. */
size_t uns_backing_bytes(const struct uns_backing *backing);

/* Read up to len bytes at byte `off` of a virtual file whose layout names the backing's catalog. Returns bytes copied
 * (short only at end of file, 0 behind it) or a negative errno: -ESTALE a source file is not what the catalog saw,
 * -EBADMSG damaged item, -EIO. On error nothing of buf may be used. Cost: O(log segments) plus the I/O. */
ssize_t uns_read(struct uns_backing *backing, const struct uns_layout *layout, void *buf, size_t len, uint64_t off,
		 struct uns_err *err);
/* The same by another way than the page cache. It holds for elements that lie in a shard as they are wanted: what
 * must be decompressed or put in order, and headers, come by way of the page cache. */
ssize_t uns_read_by(enum uns_way way, struct uns_backing *backing, const struct uns_layout *layout, void *buf,
		    size_t len, uint64_t off, struct uns_err *err);

/* Lend a source file's descriptor to `use`, between two checks that the file is the one that the catalog saw:
 * -ESTALE when it is not. */
int uns_backing_lend(struct uns_backing *backing, uint32_t file, int (*use)(void *ctx, int fd, struct uns_err *err),
		     void *ctx, struct uns_err *err);

/* Is a source file still the one that the catalog saw? -ESTALE if not. */
int uns_backing_check(struct uns_backing *backing, uint32_t file, struct uns_err *err);

/* Read the item headers of a tensor's pieces now, in parallel, and check them against the catalog
 * (dtype, shape). Otherwise the first read of a piece does that. */
int uns_backing_resolve(struct uns_backing *backing, const struct uns_tensor *tensor, struct uns_err *err);

/* Do two tensors of equal dtype and size hold equal bytes? Compares their CRCs, if both are known (of the whole
 * tensors, or of the pieces where the tensors are cut alike); else the bytes. CRCs are known from the pieces'
 * containers, or from what was found earlier. `how` (may be NULL) receives "recorded CRCs" or "comparison". */
int uns_backing_equal(struct uns_backing *backing, const struct uns_tensor *a, const struct uns_tensor *b, bool *equal,
		      const char **how, struct uns_err *err);

/* CRC-32 of all of a tensor served as `out`, as UNS_FROM_CRC32 shows it: what was found before, or what combines from
 * the CRCs that the pieces' containers recorded; else 0, which means "not known" (and is what torch writes with
 * set_crc32_options(False)). Reads headers at most. What was served once for this tensor and type stays as long as the
 * backing does, even if more becomes known: a page that the kernel keeps and one that it asks for later must agree. */
int uns_backing_crc(struct uns_backing *backing, const struct uns_tensor *tensor, enum uns_dtype out, uint32_t *crc,
		    struct uns_err *err);

/* Asked often, and from several threads: true = give up. */
struct uns_stop {
	bool (*asked)(void *ctx);
	void *ctx;
};

/* The same for lib/verify, which counts what it has read; by one thread at a time. */
struct uns_verify_watch {
	bool (*asked)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
	void *ctx;
};

/* Find out all CRCs that a layout shows, in parallel, reading the data of those that are not known.
 * To be called before the layout's file is read: what was served as 0 stays 0. -EINTR when `stop`
 * (may be NULL) asks for it: what was found until then is remembered. */
int uns_backing_crcs_find(struct uns_backing *backing, const struct uns_layout *layout, const struct uns_stop *stop,
			  struct uns_err *err);

/* All CRCs found so far as bytes, and back. What does not fit the catalog is passed over. The numbers
 * themselves are trusted. */
void uns_backing_crc_export(const struct uns_backing *backing, struct uns_text *out);
void uns_backing_crc_import(struct uns_backing *backing, struct uns_span in);
uint64_t uns_backing_crc_changes(const struct uns_backing *backing); /* grows with each new one */

/* The value of one non-tensor torch.save item (a BYTE item of DCP), parsed into the arena. */
int uns_backing_value(struct uns_backing *backing, const struct uns_named_value *item, struct uns_arena *arena,
		      const struct uns_value **out, struct uns_err *err);

#endif
