/* Streaming decompression of a part of a source file, with bounded memory and bounded output. */
#include "engine/decode.h"

#include <zstd.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum { IN_BYTES = 1 << 20, OUT_BYTES = 256 << 10 };

struct stream {
	struct uns_backing *b;
	uint32_t file;
	uint64_t off, end; /* compressed bytes not read yet */
	uint64_t made, max;
	ZSTD_DStream *z;
	uint8_t *in, *out;
	size_t want; /* what the decoder expects next; 0 = between frames */
};

static void stream_fini(struct stream *s)
{
	ZSTD_freeDStream(s->z);
	free(s->in);
	free(s->out);
}

static int fail_stream(const struct stream *s, const char *what, struct uns_err *err)
{
	const struct uns_file *f = &s->b->cat->files[s->file];

	return uns_fail(err, -EBADMSG, "%s/%s: zstd data that ends at byte %llu %s",
			uns_root_path(f->root), f->path, (unsigned long long)s->end, what);
}

static int fail_too_long(const struct stream *s, struct uns_err *err)
{
	const struct uns_file *f = &s->b->cat->files[s->file];

	return uns_fail(err, -EBADMSG,
			"%s/%s: zstd data that ends at byte %llu holds more than the %llu bytes "
			"expected; it is damaged or does not belong to this metadata",
			uns_root_path(f->root), f->path, (unsigned long long)s->end,
			(unsigned long long)s->max);
}

/* A frame that says at its start that it is too long is refused before any work. */
static int check_declared(const struct stream *s, const uint8_t *bytes, size_t len,
			  struct uns_err *err)
{
	unsigned long long declared = ZSTD_getFrameContentSize(bytes, len);

	if (declared == ZSTD_CONTENTSIZE_ERROR)
		return fail_stream(s, "is damaged (no zstd frame)", err);
	if (declared != ZSTD_CONTENTSIZE_UNKNOWN && declared > s->max)
		return fail_too_long(s, err);
	return 0;
}

static int emit(struct stream *s, size_t len, uns_zstd_sink *sink, void *ctx, struct uns_err *err)
{
	if (len > s->max - s->made)
		return fail_too_long(s, err);
	if (len)
		UNS_TRY(sink(ctx, s->out, len, s->made, err));
	s->made += len;
	return 0;
}

/* Everything that one buffer of input gives. */
static int decompress(struct stream *s, size_t len, uns_zstd_sink *sink, void *ctx,
		      struct uns_err *err)
{
	ZSTD_inBuffer in = { s->in, len, 0 };
	ZSTD_outBuffer out;

	do {
		out = (ZSTD_outBuffer){ s->out, OUT_BYTES, 0 };
		s->want = ZSTD_decompressStream(s->z, &out, &in);
		if (ZSTD_isError(s->want))
			return fail_stream(s, ZSTD_getErrorName(s->want), err);
		UNS_TRY(emit(s, out.pos, sink, ctx, err));
	} while (in.pos < in.size || (s->want && out.pos == out.size));
	return 0;
}

static int stream_run(struct stream *s, uns_zstd_sink *sink, void *ctx, struct uns_err *err)
{
	bool first = true;

	while (s->off < s->end) {
		size_t len = (size_t)uns_u64_min(IN_BYTES, s->end - s->off);

		UNS_TRY(uns_source_pread(s->b, s->file, s->in, len, s->off, err));
		if (first)
			UNS_TRY(check_declared(s, s->in, len, err));
		first = false;
		UNS_TRY(decompress(s, len, sink, ctx, err));
		s->off += len;
	}
	return s->want || first ? fail_stream(s, "is cut short", err) : 0;
}

int uns_zstd_read(struct uns_backing *b, uint32_t file, uint64_t offset_bytes,
		  uint64_t length_bytes, uint64_t max_bytes, uns_zstd_sink *sink, void *ctx,
		  uint64_t *out_bytes, struct uns_err *err)
{
	UNS_CLEANUP(stream_fini) struct stream s = { .b = b,
						     .file = file,
						     .off = offset_bytes,
						     .end = offset_bytes + length_bytes,
						     .max = max_bytes };

	s.z = ZSTD_createDStream();
	s.in = malloc(IN_BYTES);
	s.out = malloc(OUT_BYTES);
	if (!s.z || !s.in || !s.out)
		return uns_oom(err);
	UNS_TRY(stream_run(&s, sink, ctx, err));
	*out_bytes = s.made;
	return 0;
}
