/* Reads one saved object that is not a tensor: a torch.save item, maybe compressed, parsed into a value tree. */
#include "engine/engine.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "engine/decode.h"
#include "engine/edges.h"
#include "engine/source_read.h"
#include "wire/torchfile.h"

enum { MAX_VALUE_BYTES = 256 << 20 };

static int value_parse(const struct uns_reader *r, struct uns_arena *arena, const struct uns_value **out,
		       struct uns_err *err)
{
	struct uns_torchfile file;

	UNS_TRY(uns_torchfile_open(r, arena, &file, err));
	*out = file.root;
	return 0;
}

static int text_append(void *ctx, const void *bytes, size_t len, uint64_t off, struct uns_err *err)
{
	struct uns_text *text = ctx;

	(void)off; /* in order */
	uns_text_add(text, bytes, len);
	return text->failed ? uns_oom(err) : 0;
}

static int value_parse_zstd(struct uns_backing *b, const struct uns_named_value *item, struct uns_arena *arena,
			    const struct uns_value **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	const struct uns_zstd_part part = { .file = item->file,
					    .offset_bytes = item->offset_bytes,
					    .length_bytes = item->length_bytes,
					    .max_bytes = MAX_VALUE_BYTES,
					    .name = item->name };
	struct uns_span span;
	struct uns_reader r;
	uint64_t len;

	UNS_TRY(uns_zstd_read(b, &part, text_append, &text, &len, err));
	span = uns_span_of(text.p, text.len);
	r = uns_reader_of_span(&span);
	return value_parse(&r, arena, out, err);
}

int uns_backing_value(struct uns_backing *b, const struct uns_named_value *item, struct uns_arena *arena,
		      const struct uns_value **out, struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[item->file];
	struct uns_source_file source = { b, item->file, NULL };
	struct uns_reader file = uns_reader_of_source(&source);
	struct uns_subreader part = { &file, item->offset_bytes };
	struct uns_reader whole = uns_reader_of_part(&part, item->length_bytes), r;
	struct uns_edges edges;
	int code;

	if (item->value) {
		*out = item->value;
		return 0;
	}
	r = uns_reader_of_edges(&edges, &whole);
	code = item->codec == UNS_CODEC_ZSTD ? value_parse_zstd(b, item, arena, out, err)
					     : value_parse(&r, arena, out, err);
	if ((code == -EBADMSG || code == -ENOTSUP) && err)
		uns_fail_in(err, "%s/%s: %s at byte %llu", uns_root_path(f->root), f->path, item->name,
			    (unsigned long long)item->offset_bytes);
	return code;
}
