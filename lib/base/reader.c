/* Readers over memory and over a part of another reader. */
#include "base/reader.h"

static int span_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_span *span = self;

	(void)err; /* bounds were checked by uns_reader_pread */
	memcpy(buf, span->p + off, len);
	return 0;
}

struct uns_reader uns_reader_of_span(struct uns_span *span)
{
	return (struct uns_reader){ span_pread, span, uns_span_left(span) };
}

static int part_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_subreader *part = self;

	return uns_reader_pread(part->whole, buf, len, part->off + off, err);
}

struct uns_reader uns_reader_of_part(struct uns_subreader *part, uint64_t len)
{
	return (struct uns_reader){ part_pread, part, len };
}
