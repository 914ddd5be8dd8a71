/* All bytes of source files that the engine uses are read here. After a read and before its bytes are used, the file is
 * checked to be the one that the catalog saw. */
#ifndef UNS_ENGINE_SOURCE_READ_H
#define UNS_ENGINE_SOURCE_READ_H

#include "base/reader.h"
#include "engine/backing.h"
#include "engine/unchecked.h"

/* By which way the checkpoint's shards are read from front to back: until one is found, the page cache. Takes no lock.
 */
enum uns_way uns_source_way(struct uns_backing *b);
/* Are the checkpoint's shards read in turn (turns.h)? Then what is read beside elements is too. */
bool uns_source_in_turn(struct uns_backing *b);
/* Exactly len bytes of a source file that is checked to be the one that the catalog saw: -ESTALE when it is not. */
int uns_source_pread(struct uns_backing *b, uint32_t file, void *buf, size_t len, uint64_t off, struct uns_err *err);
struct uns_how {
	enum uns_way way;
	bool may_wait; /* else -EAGAIN, without a sentence, where storage would be waited for */
	struct uns_unchecked *unchecked; /* the file is added to these, and to be checked by uns_source_check_read; NULL
					    = it is checked at once */
};
/* The same by another way, or without waiting. */
int uns_source_pread_how(struct uns_backing *b, uint32_t file, struct uns_how how, void *buf, size_t len, uint64_t off,
			 struct uns_err *err);
/* After the reads of one request and before its bytes are used: -ESTALE when a file is not the one that the catalog
 * saw.
 */
int uns_source_check_read(struct uns_backing *b, const struct uns_unchecked *unchecked, struct uns_err *err);
/* Asks storage for bytes [at, end), unless they are in memory. Waits no longer than a read of them would. false: each
 * read will wait for itself. Fails silently, as a hint may. */
bool uns_source_will_read(struct uns_backing *b, uint32_t file, uint64_t at, uint64_t end);

/* A source file of the catalog as a reader; `source` must outlive it. */
struct uns_source_file {
	struct uns_backing *backing;
	uint32_t file;
	struct uns_unchecked *unchecked; /* as in struct uns_how */
};
struct uns_reader uns_reader_of_source(struct uns_source_file *source);

#endif
