/* A memo as a file that many machines read: one checkpoint described, in a directory, under a name made of its key.
 * All numbers are little-endian.
 *
 *   u8[8]   "UNSMEMO\n"
 *   u32     2, the version of this form
 *   u32     0
 *   u64     the key, which is the file's name too
 *   u64     length of the inputs' bytes, of the catalog's, of the places' (three numbers)
 *   u8[32]  SHA-256 of all bytes before and behind these
 *   ...     zstd: the three, one behind the other
 *
 * A file is written once, under a temporary name, and renamed; no program changes one. The bytes are not trusted: a
 * memo that is cut, changed or of another form is refused as a whole. */
#ifndef UNS_STORE_MEMO_FILE_H
#define UNS_STORE_MEMO_FILE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"

enum { MEMO_FILE_HEAD_BYTES = 80 };
#define MEMO_FILE_SUFFIX ".memo"

struct memo_parts {
	struct uns_span inputs, catalog, places;
};

/* The parts lie in the arena. -EBADMSG: no memo, or a damaged one; -EEXIST: that of another key; -ENOTSUP: of a version
 * that is not known. */
int memo_file_parse(struct uns_span bytes, uint64_t key, struct uns_arena *arena, struct memo_parts *out,
		    struct uns_err *err);
/* out: malloc'd. */
int memo_file_emit(uint64_t key, const struct memo_parts *parts, char **out, size_t *n, struct uns_err *err);

/* The file of that key in a directory; NULL = out of memory. */
char *memo_file_name(const char *directory, uint64_t key, struct uns_arena *arena);
/* -ENOENT: it is not there. Other codes: it is there, and cannot be used. */
int memo_file_read(const char *file, uint64_t key, struct uns_arena *arena, struct memo_parts *out,
		   struct uns_err *err);
/* Makes the file, or puts it in the place of one: readers see the one or the other. */
int memo_file_write(const char *file, const char *bytes, size_t n, struct uns_err *err);

#endif
