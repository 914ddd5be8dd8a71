/* Bytes at an offset: all that a parser needs of a file. Over memory instead of a file, the same
 * parser runs in unit tests and fuzz targets. */
#ifndef UNS_BASE_READER_H
#define UNS_BASE_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/span.h"

struct uns_reader {
	/* Fill buf with exactly len bytes from byte `off`, or fail. */
	int (*pread)(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err);
	void *self;
	uint64_t size; /* bytes that exist */
};

static inline int uns_reader_pread(const struct uns_reader *r, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	if (off > r->size || len > r->size - off)
		return uns_fail(err, -EBADMSG, "bytes %llu+%zu pass the end of %llu bytes", (unsigned long long)off,
				len, (unsigned long long)r->size);
	return r->pread(r->self, buf, len, off, err);
}

/* A reader over memory; `span` must outlive the reader. */
struct uns_reader uns_reader_of_span(struct uns_span *span);

/* The part [off, off+len) of another reader as a reader of its own. */
struct uns_subreader {
	const struct uns_reader *whole;
	uint64_t off;
};
struct uns_reader uns_reader_of_part(struct uns_subreader *part, uint64_t len);

#endif
