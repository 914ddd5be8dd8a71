/* Streaming decompression of a part of a source file. Three things are bounded, whatever the data
 * are: the input and output buffers here, the bytes made (max_bytes), and zstd's own window
 * (engine/windows.h), which each frame's header asks for. */
#include "engine/decode.h"

#include <stdio.h>
#include <zstd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/source_read.h"
#include "wire/zstd_frame.h"

enum { IN_BYTES = 1 << 20, OUT_BYTES = 256 << 10, MIN_WINDOW_LOG = 10 };

struct stream {
	struct uns_backing *b;
	const struct uns_zstd_part *part;
	uint64_t off, end; /* compressed bytes not read yet */
	uint64_t made;
	ZSTD_DStream *z;
	uint8_t *buf, *out;
	ZSTD_inBuffer in;      /* what of buf is not decoded yet */
	size_t want;           /* what the decoder expects next; 0 = between frames */
	uint64_t window_bytes; /* counted for this stream */
};

static void stream_fini(struct stream *s)
{
	ZSTD_freeDStream(s->z);
	free(s->buf);
	free(s->out);
	if (s->window_bytes)
		uns_windows_give_back(&s->b->engine->windows, s->window_bytes);
}

static int fail_stream(const struct stream *s, const char *what, struct uns_err *err)
{
	const struct uns_file *f = &s->b->cat->files[s->part->file];

	return uns_fail(err, -EBADMSG, "%s/%s: zstd data that ends at byte %llu %s", uns_root_path(f->root), f->path,
			(unsigned long long)s->end, what);
}

static int fail_too_long(const struct stream *s, struct uns_err *err)
{
	char what[160];

	snprintf(what, sizeof(what),
		 "holds more than the %llu bytes expected; it is damaged, or does not belong to this metadata",
		 (unsigned long long)s->part->max_bytes);
	return fail_stream(s, what, err);
}

static int fail_window(const struct stream *s, uint64_t bytes, struct uns_err *err)
{
	const struct uns_file *f = &s->b->cat->files[s->part->file];

	/* Half of mem goes to windows: see uns_engine_options. */
	return uns_fail(err, -ENOTSUP,
			"%s/%s: %s: decompressing it takes a window of %llu bytes, and mem allows %llu; "
			"set -o mem=%lluMiB or more",
			uns_root_path(f->root), f->path, s->part->name, (unsigned long long)bytes,
			(unsigned long long)s->b->engine->windows.max_bytes,
			(unsigned long long)((bytes + (1 << 19) - 1) >> 19));
}

/* Count what the next frame needs and let zstd use no more. If that is more than was counted so far, the smaller window
 * is given back first, with its memory: a thread that waits for a window must hold none. */
static int take_window(struct stream *s, uint64_t window, uint64_t used, struct uns_err *err)
{
	struct uns_windows *windows = &s->b->engine->windows;
	int log = MIN_WINDOW_LOG;

	if (used > s->window_bytes) {
		ZSTD_freeDStream(s->z);
		uns_windows_give_back(windows, s->window_bytes);
		s->window_bytes = 0;
		UNS_TRY_ALLOC(s->z = ZSTD_createDStream(), err);
		if (!uns_windows_take(windows, used))
			return fail_window(s, used, err);
		s->window_bytes = used;
	}
	while (log < 63 && UINT64_C(1) << log < window)
		log++;
	if (ZSTD_isError(ZSTD_DCtx_setParameter(s->z, ZSTD_d_windowLogMax, log)))
		return fail_window(s, window, err);
	return 0;
}

/* A frame whose header records too many bytes is refused before any work. */
static int start_frame(struct stream *s, struct uns_err *err)
{
	const uint8_t *p = s->buf + s->in.pos;
	size_t left = s->in.size - s->in.pos;
	unsigned long long size = ZSTD_getFrameContentSize(p, left);
	uint64_t window, used;

	if (size == ZSTD_CONTENTSIZE_ERROR || !uns_zstd_window(uns_span_of(p, left), &window))
		return fail_stream(s, "is damaged (no zstd frame)", err);
	if (size != ZSTD_CONTENTSIZE_UNKNOWN && size > s->part->max_bytes - s->made)
		return fail_too_long(s, err);
	used = size == ZSTD_CONTENTSIZE_UNKNOWN ? window : uns_u64_min(window, size);
	return take_window(s, window, used, err);
}

/* Keep enough input for a frame's header, or all that is left. */
static int refill(struct stream *s, struct uns_err *err)
{
	size_t left = s->in.size - s->in.pos, n;

	if (left >= UNS_ZSTD_MAX_HEADER || s->off == s->end)
		return 0;
	memmove(s->buf, s->buf + s->in.pos, left);
	n = (size_t)uns_u64_min(IN_BYTES - left, s->end - s->off);
	UNS_TRY(uns_source_pread(s->b, s->part->file, s->buf + left, n, s->off, err));
	s->off += n;
	s->in = (ZSTD_inBuffer){ s->buf, left + n, 0 };
	return 0;
}

/* Up to the end of the frame or of the input. */
static int decompress(struct stream *s, uns_zstd_sink *sink, void *ctx, struct uns_err *err)
{
	ZSTD_outBuffer out;

	do {
		out = (ZSTD_outBuffer){ s->out, OUT_BYTES, 0 };
		s->want = ZSTD_decompressStream(s->z, &out, &s->in);
		if (ZSTD_isError(s->want))
			return fail_stream(s, ZSTD_getErrorName(s->want), err);
		if (out.pos > s->part->max_bytes - s->made)
			return fail_too_long(s, err);
		if (out.pos)
			UNS_TRY(sink(ctx, s->out, out.pos, s->made, err));
		s->made += out.pos;
	} while (s->want && (s->in.pos < s->in.size || out.pos == out.size));
	return 0;
}

static int stream_run(struct stream *s, uns_zstd_sink *sink, void *ctx, struct uns_err *err)
{
	if (s->off == s->end)
		return fail_stream(s, "is truncated", err);
	for (;;) {
		UNS_TRY(refill(s, err));
		if (s->in.pos == s->in.size)
			return s->want ? fail_stream(s, "is truncated", err) : 0;
		if (!s->want)
			UNS_TRY(start_frame(s, err));
		UNS_TRY(decompress(s, sink, ctx, err));
	}
}

int uns_zstd_read(struct uns_backing *b, const struct uns_zstd_part *part, uns_zstd_sink *sink, void *ctx,
		  uint64_t *out_bytes, struct uns_err *err)
{
	UNS_CLEANUP(stream_fini)
	struct stream s = {
		.b = b, .part = part, .off = part->offset_bytes, .end = part->offset_bytes + part->length_bytes
	};

	s.z = ZSTD_createDStream();
	s.buf = malloc(IN_BYTES);
	s.out = malloc(OUT_BYTES);
	UNS_TRY_ALLOC(s.z && s.buf && s.out, err);
	s.in.src = s.buf;
	UNS_TRY(stream_run(&s, sink, ctx, err));
	*out_bytes = s.made;
	return 0;
}
