/* Reads items of a DCP directory as values. Owns the file descriptors that it reads with, and the limit on an object's
 * size. Does not know what the objects mean. */
#include "dcp/item.h"

#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "wire/torchfile.h"

enum {
	MAX_ITEM_BYTES = 64 << 20,
	WINDOW_BYTES = 256 << 10,
	HEAD_BYTES = 8 << 10,
	HEAD_STORED_BYTES = 160 << 10, /* a zstd block has 128 KiB at most, stored and decoded */
};

void uns_dcp_reader_init(struct uns_dcp_reader *reader, const struct uns_catalog *cat)
{
	size_t i;

	*reader = (struct uns_dcp_reader){ .cat = cat };
	for (i = 0; i < UNS_DCP_FILES_OPEN; i++)
		reader->open[i] = (struct uns_dcp_open_file){ .file = UNS_NONE, .fd = -1 };
}

void uns_dcp_reader_fini(struct uns_dcp_reader *reader)
{
	size_t i;

	for (i = 0; i < UNS_DCP_FILES_OPEN; i++)
		uns_close_p(&reader->open[i].fd);
	uns_arena_fini(&reader->windows);
	uns_dcp_reader_init(reader, reader->cat);
}

/* -- bytes -- */

/* Returns the open file of this number; opens it in place of the one that was read longest ago. */
static int switch_file(struct uns_dcp_reader *reader, uint32_t file, struct uns_dcp_open_file **out,
		       struct uns_err *err)
{
	struct uns_dcp_open_file *o = reader->open, *end = o + UNS_DCP_FILES_OPEN, *oldest = o;
	const struct uns_file *f = &reader->cat->files[file];
	struct uns_stat now;

	for (; o < end && o->file != file; o++)
		if (o->last_read < oldest->last_read)
			oldest = o;
	*out = o = o < end ? o : oldest;
	o->last_read = ++reader->n_reads;
	if (o->file == file)
		return 0;
	uns_close_p(&o->fd);
	o->fd = -1;
	o->file = UNS_NONE;
	o->len = 0;
	UNS_TRY(uns_root_open_file(f->root, f->path, &o->fd, &now, err));
	if (!uns_identity_equal(&now.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s changed while it was read", f->path);
	o->file = file;
	return 0;
}

/* Reads the first `len` stored bytes of the item. ahead: also reads the bytes behind them into the window, because the
 * next item is there. A file that fits into the window is read once, whole. */
static int stored_bytes(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location, size_t len,
			bool ahead, struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	const struct uns_file *f = &reader->cat->files[location->file];
	const uint64_t size = f->stat.id.size, off = location->offset_bytes;
	bool whole = size <= WINDOW_BYTES;
	struct uns_dcp_open_file *o;
	uint8_t *bytes;

	if (f->missing)
		return UNS_FAIL_WITH(err, ITEM_FILE_MISSING, .file = f->path);
	if (!uns_inside(off, location->length_bytes, size))
		return UNS_FAIL_WITH(err, ITEM_CUT, .file = f->path, .expected = uns_num(off + location->length_bytes),
				     .found = uns_num(size));
	UNS_TRY(switch_file(reader, location->file, &o, err));
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, len, 1), err);
	*out = uns_span_of(bytes, len);
	if (!o->window || off < o->at_bytes || !uns_inside(off - o->at_bytes, len, o->len)) {
		if (len > WINDOW_BYTES || (!ahead && !whole))
			return uns_fd_pread(o->fd, bytes, len, off, f->path, err);
		if (!o->window)
			UNS_TRY_ALLOC(o->window = uns_arena_alloc(&reader->windows, WINDOW_BYTES, 1), err);
		o->len = 0;
		o->at_bytes = whole ? 0 : off;
		UNS_TRY(uns_fd_pread(o->fd, o->window, (size_t)uns_u64_min(WINDOW_BYTES, size - o->at_bytes),
				     o->at_bytes, f->path, err));
		o->len = (size_t)uns_u64_min(WINDOW_BYTES, size - o->at_bytes);
	}
	memcpy(bytes, o->window + (off - o->at_bytes), len);
	return 0;
}

/* Decompresses whole frames. Input and output are both in memory, so zstd needs no window beside them, whatever window
 * the frames' headers name. A frame may not record its decompressed size, so the output grows until it fits. */
static int unzstd(struct uns_span in, struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	enum { FIRST_BYTES = 8 << 10 };
	UNS_CLEANUP(uns_free_p) uint8_t *room = NULL;
	size_t size = FIRST_BYTES, n;
	uint8_t *bytes;

	for (;; size *= 2) {
		free(room);
		UNS_TRY_ALLOC(room = malloc(size), err);
		n = ZSTD_decompress(room, size, in.p, uns_span_left(&in));
		if (!ZSTD_isError(n))
			break;
		if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
			return uns_oom(err);
		if (ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
			return uns_fail(err, -EBADMSG, "damaged zstd frame (%s)", ZSTD_getErrorName(n));
		if (size >= MAX_ITEM_BYTES)
			return uns_fail(err, -ENOTSUP, "it decompresses to more than the %d bytes that unshard reads",
					MAX_ITEM_BYTES);
	}
	UNS_TRY_ALLOC(bytes = uns_arena_alloc(arena, n, 1), err);
	memcpy(bytes, room, n);
	*out = uns_span_of(bytes, n);
	return 0;
}

int uns_dcp_item_bytes(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		       struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	const struct uns_file *f = &reader->cat->files[location->file];
	struct uns_span stored;

	if (!f->missing && location->length_bytes > MAX_ITEM_BYTES)
		return UNS_FAIL_WITH(err, ITEM_TOO_LARGE, .file = f->path, .expected = uns_num(MAX_ITEM_BYTES),
				     .found = uns_num(location->length_bytes));
	UNS_TRY(stored_bytes(reader, location, (size_t)location->length_bytes, true, arena, &stored, err));
	if (location->codec == UNS_CODEC_ZSTD)
		return unzstd(stored, arena, out, err);
	*out = stored;
	return 0;
}

/* Decompresses the first blocks. */
static int unzstd_head(struct uns_span in, struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	uint8_t *bytes = uns_arena_alloc(arena, HEAD_BYTES, 1);
	ZSTD_inBuffer from = { in.p, uns_span_left(&in), 0 };
	ZSTD_outBuffer to = { bytes, HEAD_BYTES, 0 };
	ZSTD_DStream *stream = ZSTD_createDStream();
	size_t before, code = 0;

	if (!bytes || !stream) {
		ZSTD_freeDStream(stream);
		return uns_oom(err);
	}
	do {
		before = from.pos + to.pos;
		code = ZSTD_decompressStream(stream, &to, &from);
	} while (!ZSTD_isError(code) && to.pos < to.size && from.pos + to.pos > before);
	ZSTD_freeDStream(stream);
	if (ZSTD_isError(code) && ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
		return uns_oom(err);
	if (ZSTD_isError(code))
		return uns_fail(err, -EBADMSG, "damaged zstd frame (%s)", ZSTD_getErrorName(code));
	*out = uns_span_of(bytes, to.pos);
	return 0;
}

int uns_dcp_item_head(struct uns_dcp_reader *reader, const struct uns_dcp_item_location *location,
		      struct uns_arena *arena, struct uns_span *out, struct uns_err *err)
{
	bool zstd = location->codec == UNS_CODEC_ZSTD;
	size_t len = (size_t)uns_u64_min(location->length_bytes, zstd ? HEAD_STORED_BYTES : HEAD_BYTES);
	struct uns_span stored;

	UNS_TRY(stored_bytes(reader, location, len, false, arena, &stored, err));
	if (zstd)
		return unzstd_head(stored, arena, out, err);
	*out = stored;
	return 0;
}

/* -- values -- */

static int number_of_bytes(enum uns_dtype dtype, const uint8_t *p, struct uns_value *out, struct uns_err *err)
{
	uint64_t bits = uns_le(p, uns_dtype_size(dtype) <= 8 ? uns_dtype_size(dtype) : 8);
	uint32_t low = (uint32_t)(dtype == UNS_BF16 ? bits << 16 : bits);
	float f;

	out->kind = UNS_VALUE_FLOAT;
	switch (dtype) {
	case UNS_F64:
		memcpy(&out->f, &bits, sizeof(out->f));
		return 0;
	case UNS_F32:
	case UNS_BF16: /* the upper half of an fp32 number */
		memcpy(&f, &low, sizeof(f));
		out->f = (double)f;
		return 0;
	case UNS_I64:
		out->kind = UNS_VALUE_INT;
		out->i = (int64_t)bits;
		return 0;
	case UNS_I32:
		out->kind = UNS_VALUE_INT;
		out->i = (int32_t)low;
		return 0;
	case UNS_BOOL:
		out->kind = UNS_VALUE_BOOL;
		out->b = bits != 0;
		return 0;
	default:
		return uns_fail(err, -ENOTSUP, "it holds a number of dtype %s, which unshard does not read",
				uns_dtype_info(dtype)->torch);
	}
}

static int number_of_tensor(const struct uns_torchfile *file, struct uns_arena *arena, const struct uns_value **out,
			    struct uns_err *err)
{
	struct uns_value *number = UNS_NEW(arena, struct uns_value);
	struct uns_torch_tensor t;
	uint8_t bytes[16];
	size_t size;
	uint32_t d;

	UNS_TRY_ALLOC(number, err);
	UNS_TRY(uns_torch_tensor(file, file->root, &t, err));
	for (d = 0; d < t.n_dims; d++)
		if (t.dims[d] != 1)
			return uns_fail(err, -ENOTSUP, "it holds a tensor of several elements; expected one number");
	size = uns_dtype_size(t.dtype);
	UNS_TRY(uns_reader_pread(file->r, bytes, size, t.data_bytes + t.first_elem * size, err));
	UNS_TRY(number_of_bytes(t.dtype, bytes, number, err));
	*out = number;
	return 0;
}

/* torch.load reads records that hold no value, too, and fails if one of them is damaged. */
static int check_records(const struct uns_reader *r, const struct uns_torchfile *file, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const struct uns_zip_record *record = file->zip.v, *end = record + file->zip.n;
	struct uns_span unused;

	for (; record < end; record++)
		UNS_TRY(uns_zip_read(r, record, r->size, &scratch, &unused, err));
	return 0;
}

int uns_dcp_item_value(struct uns_span bytes, struct uns_arena *arena, const struct uns_value **out,
		       struct uns_err *err)
{
	struct uns_reader r = uns_reader_of_span(&bytes);
	struct uns_torchfile file;

	UNS_TRY(uns_torchfile_open(&r, arena, &file, err));
	UNS_TRY(check_records(&r, &file, err));
	if (uns_torch_is_tensor(file.root))
		return number_of_tensor(&file, arena, out, err);
	*out = file.root;
	return 0;
}
