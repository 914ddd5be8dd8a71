/* Bytes out of layouts, against an oracle that the test builds itself: windows over boxes, ranges,
 * strides, casts and compressed items; sums; sources that change; many threads; bounded descriptors and
 * caches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "engine/cast.h"
#include "engine/engine.h"
#include "model/block_tensor.h"
#include "model/joined_tensor.h"
#include "model/sum_tensor.h"
#include "torch_item.h"

/* -- a checkpoint in the making -- */

enum { MAX_TENSORS = 64 };

struct made {
	char dir[64];
	struct uns_root *root;
	struct uns_catalog *cat;
	struct uns_engine *engine;
	struct uns_backing *backing;
	struct uns_arena arena;
	uint8_t *dense[MAX_TENSORS]; /* every tensor as it should read */
	unsigned n_files;
	uint64_t random;
};

static uint64_t next_random(struct made *m)
{
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return m->random >> 24;
}

static uint64_t below(struct made *m, uint64_t n)
{
	return next_random(m) % n;
}

static void start(struct made *m)
{
	struct uns_err err = { 0 };

	*m = (struct made){ .random = 20240607 };
	strcpy(m->dir, "/tmp/unshard-read-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	assert_int_equal(uns_root_open(m->dir, NULL, &m->root, &err), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &m->cat, &err), 0);
}

static void open_engine(struct made *m, struct uns_engine_options options)
{
	struct uns_err err = { 0 };

	if (!options.n_threads)
		options.n_threads = 4;
	options.cache_dir = m->dir;
	assert_int_equal(uns_catalog_seal(m->cat, &err), 0);
	assert_int_equal(uns_engine_new(&options, &m->engine, &err), 0);
	assert_int_equal(uns_backing_new(m->engine, m->cat, &m->backing, &err), 0);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void finish(struct made *m)
{
	size_t i;

	uns_backing_free(m->backing);
	uns_engine_free(m->engine);
	uns_catalog_free(m->cat);
	uns_root_close(m->root);
	uns_arena_fini(&m->arena);
	for (i = 0; i < MAX_TENSORS; i++)
		free(m->dense[i]);
	nftw(m->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *full_path(const struct made *m, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", m->dir, name);
	return path;
}

static void put(const struct made *m, const char *name, const void *bytes, size_t len)
{
	int fd = open(full_path(m, name), O_CREAT | O_WRONLY | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

/* A file of its own in the catalog. */
static uint32_t add_file(struct made *m, const void *bytes, size_t len)
{
	struct uns_err err = { 0 };
	char name[32];
	uint32_t file;

	snprintf(name, sizeof(name), "shard-%u.bin", m->n_files++);
	put(m, name, bytes, len);
	assert_int_equal(uns_catalog_add_file(m->cat, m->root, name, &file, &err), 0);
	return file;
}

/* A tensor with random content, except that floats are finite; pieces follow. */
static uint32_t add_tensor(struct made *m, enum uns_dtype dtype, struct uns_shape shape)
{
	struct uns_tensor t = { .name = "w",
				.key = "model.w",
				.root = "",
				.dtype = dtype,
				.shape = shape,
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE };
	size_t size = (size_t)uns_shape_elems(&shape) * uns_dtype_size(dtype), i;
	struct uns_err err = { 0 };
	uint32_t id;

	assert_int_equal(uns_catalog_add_tensor(m->cat, &t, &id, &err), 0);
	assert_true(id < MAX_TENSORS);
	m->dense[id] = malloc(size + 1);
	for (i = 0; i < size; i++)
		m->dense[id][i] = (uint8_t)(next_random(m) & 0xbf);
	return id;
}

/* The bytes of a box, by the definition: element by element. */
static uint8_t *cut_box(const struct made *m, uint32_t id, const struct uns_box *box, size_t *len)
{
	const struct uns_tensor *t = &m->cat->tensors[id];
	size_t es = uns_dtype_size(t->dtype), n = (size_t)uns_box_elems(box), i;
	uint8_t *out = malloc(n * es + 1);

	for (i = 0; i < n; i++) {
		uint64_t rest = i, at = 0, stride = 1;
		uint32_t d;

		for (d = box->n; d-- > 0; rest /= box->len[d]) {
			at += (box->lo[d] + rest % box->len[d]) * stride;
			stride *= t->shape.dim[d];
		}
		memcpy(out + i * es, m->dense[id] + at * es, es);
	}
	*len = n * es;
	return out;
}

/* Raw pieces lie behind some other bytes. */
static void add_raw_box(struct made *m, uint32_t id, struct uns_box box)
{
	struct uns_piece piece = { .kind = UNS_PIECE_BOX, .box = &box, .rank = -1 };
	struct uns_text t = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	uint8_t *bytes;
	size_t len;

	bytes = cut_box(m, id, &box, &len);
	piece.offset_bytes = below(m, 100);
	while (t.len < piece.offset_bytes)
		uns_text_str(&t, "#");
	uns_text_add(&t, bytes, len);
	piece.length_bytes = len;
	piece.file = add_file(m, t.p, t.len);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
	uns_text_fini(&t);
	free(bytes);
}

static void add_raw_range(struct made *m, uint32_t id, uint64_t first, uint64_t count)
{
	size_t es = uns_dtype_size(m->cat->tensors[id].dtype);
	struct uns_piece piece = {
		.kind = UNS_PIECE_RANGE, .range = { first, count }, .rank = -1, .length_bytes = count * es
	};
	struct uns_err err = { 0 };

	piece.file = add_file(m, m->dense[id] + first * es, (size_t)count * es);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
}

/* Cut a two-dimensional tensor into a grid. */
static void add_grid(struct made *m, uint32_t id, uint64_t rows, uint64_t cols)
{
	const struct uns_shape s = m->cat->tensors[id].shape;
	uint64_t r, c;

	for (r = 0; r < s.dim[0]; r += rows)
		for (c = 0; c < s.dim[1]; c += cols)
			add_raw_box(m, id,
				    (struct uns_box){ .n = 2,
						      .lo = { r, c },
						      .len = { r + rows < s.dim[0] ? rows : s.dim[0] - r,
							       c + cols < s.dim[1] ? cols : s.dim[1] - c } });
}

enum kind { PLAIN, TRANSPOSED, NOT_AT_START };

/* The rows [lo, lo+len) of a two-dimensional tensor as a torch item, maybe compressed. */
static void add_item_rows(struct made *m, uint32_t id, uint64_t lo, uint64_t len, enum kind kind, enum uns_codec codec)
{
	const struct uns_tensor t = m->cat->tensors[id];
	size_t es = uns_dtype_size(t.dtype), rows = (size_t)len, cols = (size_t)t.shape.dim[1], i, j;
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .box = &(struct uns_box){ 2, { lo, 0 }, { len, t.shape.dim[1] } },
				   .rank = 7,
				   .container = UNS_TORCH_ITEM,
				   .codec = codec };
	size_t skip = kind == NOT_AT_START ? 3 : 0, size = (rows * cols + skip) * es;
	const uint8_t *rows_at = m->dense[id] + lo * cols * es;
	struct item_spec spec = {
		.dtype = t.dtype, .n = 2, .dims = { rows, cols }, .storage_bytes = size, .first_elem = (unsigned)skip
	};
	struct uns_text item = UNS_TEXT_INIT, out = UNS_TEXT_INIT;
	uint8_t *storage = calloc(1, size + 1);
	struct uns_err err = { 0 };

	for (i = 0; i < rows; i++)
		for (j = 0; j < cols; j++)
			memcpy(storage + (skip + (kind == TRANSPOSED ? j * rows + i : i * cols + j)) * es,
			       rows_at + (i * cols + j) * es, es);
	spec.strides[0] = kind == TRANSPOSED ? 1 : cols;
	spec.strides[1] = kind == TRANSPOSED ? rows : 1;
	spec.storage = storage;
	item_add(&item, &spec);
	uns_text_str(&out, "before");
	if (codec == UNS_CODEC_ZSTD) {
		size_t room = ZSTD_compressBound(item.len);
		char *z = malloc(room);

		room = ZSTD_compress(z, room, item.p, item.len, 3);
		assert_false(ZSTD_isError(room));
		uns_text_add(&out, z, room);
		free(z);
	} else {
		uns_text_add(&out, item.p, item.len);
	}
	piece.offset_bytes = 6;
	piece.length_bytes = out.len - 6;
	uns_text_str(&out, "behind");
	piece.file = add_file(m, out.p, out.len);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
	uns_text_fini(&item);
	uns_text_fini(&out);
	free(storage);
}

/* The columns [lo, lo+len) of a two-dimensional tensor as a torch item. */
static void add_item_columns(struct made *m, uint32_t id, uint64_t lo, uint64_t len)
{
	const struct uns_tensor *t = &m->cat->tensors[id];
	struct uns_box box = { 2, { 0, lo }, { t->shape.dim[0], len } };
	struct uns_piece piece = { .kind = UNS_PIECE_BOX, .box = &box, .rank = 7, .container = UNS_TORCH_ITEM };
	struct item_spec spec = { .dtype = t->dtype, .n = 2, .dims = { t->shape.dim[0], len }, .strides = { len, 1 } };
	struct uns_text item = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	uint8_t *bytes = cut_box(m, id, &box, &spec.storage_bytes);

	spec.storage = bytes;
	item_add(&item, &spec);
	piece.length_bytes = item.len;
	piece.file = add_file(m, item.p, item.len);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
	uns_text_fini(&item);
	free(bytes);
}

static struct uns_shape shape2(uint64_t a, uint64_t b)
{
	return (struct uns_shape){ 2, { a, b } };
}

/* -- the oracle -- */

struct file {
	struct uns_layout layout;
	uint8_t *want;
};

/* A header, every tensor given out as out[i], zeros and literals between, and a part of the first. */
static struct file make_file(struct made *m, const enum uns_dtype *out)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	struct file f;
	size_t i, n, es;
	uint8_t *cast;

	uns_layout_literal(&b, "header of thirteen", 13);
	uns_text_str(&want, "header of thi");
	for (i = 0; i < m->cat->n_tensors; i++) {
		const struct uns_tensor *t = &m->cat->tensors[i];
		enum uns_dtype to = out ? out[i] : t->dtype;
		uint64_t first = i ? 0 : uns_shape_elems(&t->shape) / 3;

		n = (size_t)(uns_shape_elems(&t->shape) - first);
		es = uns_dtype_size(to);
		cast = malloc(n * es + 1);
		uns_cast(t->dtype, m->dense[i] + first * uns_dtype_size(t->dtype), to, cast, n);
		uns_text_add(&want, cast, n * es);
		free(cast);
		uns_layout_tensor(&b, t, first, n, to);
		uns_layout_zeros(&b, i % 3);
		uns_text_add(&want, "\0\0", i % 3);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

static void check_window(struct made *m, const struct file *f, uint64_t off, size_t len)
{
	size_t want = off >= f->layout.size_bytes        ? 0
		      : len > f->layout.size_bytes - off ? (size_t)(f->layout.size_bytes - off)
							 : len;
	uint8_t *buf = malloc(len + 1);
	struct uns_err err = { 0 };
	ssize_t got;

	buf[len] = 0x5a;
	got = uns_read(m->backing, &f->layout, buf, len, off, &err);
	if (got < 0)
		fail_msg("%s", err.text);
	assert_int_equal(got, want);
	if (want)
		assert_memory_equal(buf, f->want + off, want);
	assert_int_equal(buf[len], 0x5a);
	free(buf);
}

/* Each window is read by one thread, in which ThreadSanitizer finds nothing: a tenth of them pass through the same code
 * there, and all of them with UNSHARD_LONG. */
static unsigned windows(unsigned n)
{
#ifdef __SANITIZE_THREAD__
	if (!getenv("UNSHARD_LONG"))
		return n / 10;
#endif
	return n;
}

static void check_windows(struct made *m, const struct file *f, unsigned n)
{
	static const uint64_t sizes[] = { 1, 2, 9, 64, 700, 5000, 100000, 3000000 };
	uint64_t size = f->layout.size_bytes;

	check_window(m, f, 0, (size_t)size);
	check_window(m, f, 0, (size_t)size + 100);
	check_window(m, f, size, 10);
	check_window(m, f, size + 5, 10);
	check_window(m, f, size - 1, 10);
	check_window(m, f, 3, 0);
	for (n = windows(n); n; n--)
		check_window(m, f, below(m, size), (size_t)below(m, sizes[below(m, 8)]) + 1);
}

/* Fails with `code`, and the sentence holds the words. */
static void check_fails(struct made *m, const struct uns_layout *layout, int code, const char *a, const char *b)
{
	uint8_t *buf = malloc((size_t)layout->size_bytes);
	struct uns_err err = { 0 };

	assert_int_equal(uns_read(m->backing, layout, buf, (size_t)layout->size_bytes, 0, &err), code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, a) || !strstr(err.text, b))
		fail_msg("\"%s\" and \"%s\" expected in: %s", a, b, err.text);
	free(buf);
}

/* -- windows -- */

static void add_raw_tensors(struct made *m)
{
	static const uint64_t transposed[] = { 1, 24 };
	struct uns_piece strided = { .kind = UNS_PIECE_BOX,
				     .box = &(struct uns_box){ 2, { 0, 0 }, { 24, 18 } },
				     .rank = -1,
				     .length_bytes = 24 * 18 * 8,
				     .stride_elems = transposed };
	uint8_t turned[24 * 18 * 8];
	struct uns_err err = { 0 };
	uint32_t id;
	size_t i;

	id = add_tensor(m, UNS_BF16, shape2(37, 53));
	add_grid(m, id, 13, 17);
	id = add_tensor(m, UNS_F32, (struct uns_shape){ 1, { 1000 } });
	add_raw_range(m, id, 0, 331);
	add_raw_range(m, id, 331, 1);
	add_raw_range(m, id, 332, 668);
	id = add_tensor(m, UNS_U8, (struct uns_shape){ 3, { 5, 7, 11 } });
	for (i = 0; i < 11; i++) /* one element per run */
		add_raw_box(m, id, (struct uns_box){ 3, { 0, 0, i }, { 5, 7, 1 } });
	id = add_tensor(m, UNS_F32, shape2(41, 29));
	add_grid(m, id, 10, 29);
	add_grid(m, id, 10, 29); /* replicas */
	id = add_tensor(m, UNS_I64, shape2(24, 18));
	for (i = 0; i < (size_t)24 * 18; i++)
		memcpy(turned + (i % 18 * 24 + i / 18) * 8, m->dense[id] + i * 8, 8);
	strided.file = add_file(m, turned, sizeof(turned));
	assert_int_equal(uns_catalog_add_piece(m->cat, &strided, &err), 0);
	id = add_tensor(m, UNS_F64, (struct uns_shape){ 0 });
	add_raw_box(m, id, (struct uns_box){ 0 });
	add_tensor(m, UNS_F32, shape2(0, 4));
	id = add_tensor(m, UNS_F16, shape2(3, 300000)); /* wider than scratch memory */
	add_grid(m, id, 3, 100001);
	id = add_tensor(m, UNS_F8_E4M3, shape2(9, 130000));
	add_grid(m, id, 9, 20000);
	id = add_tensor(m, UNS_F32, shape2(4, 3)); /* pieces whose ends do not ascend */
	add_raw_range(m, id, 0, 1);
	add_raw_box(m, id, (struct uns_box){ 2, { 0, 1 }, { 1, 2 } });
	add_raw_box(m, id, (struct uns_box){ 2, { 1, 0 }, { 3, 1 } });
	add_raw_box(m, id, (struct uns_box){ 2, { 1, 1 }, { 1, 2 } });
	add_raw_box(m, id, (struct uns_box){ 2, { 2, 1 }, { 2, 2 } });
}

static void reads_any_window(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 1500);
	free(f.want);
	finish(&m);
}

static void casts_any_window(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32,  UNS_BF16, UNS_U8,  UNS_F16,  UNS_I64,
					      UNS_BF16, UNS_F16,  UNS_F32, UNS_BF16, UNS_F64 };
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, out);
	check_windows(&m, &f, 1500);
	free(f.want);
	finish(&m);
}

static void reads_byte_by_byte(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32 };
	struct made m;
	struct file f;
	uint64_t i;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape2(11, 13)), 4, 5);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, out);
	for (i = 0; i < f.layout.size_bytes; i++) {
		check_window(&m, &f, i, 1);
		check_window(&m, &f, i, 7);
	}
	free(f.want);
	finish(&m);
}

/* -- blocks -- */

enum { MAX_BLOCKS = 2 };

/* What a tensor is made of; first_elem and len of each of its blocks, sources by their number in the catalog. */
static const struct block_row {
	struct uns_shape shape;
	size_t n;
	struct {
		unsigned n_sources;
		struct {
			size_t tensor;
			uint64_t first_elem;
		} source[2];
		uint64_t len[3];
		bool reversed;
	} block[MAX_BLOCKS];
} block_rows[] = {
	{ { 2, { 53, 37 } }, 1, { { 1, { { 0, 0 } }, { 1, 37, 53 }, true } } },
	/* columns that alternate; each block is a few rows of the tensor */
	{ { 2, { 40, 12 } },
	  2,
	  { { 1, { { 1, 40 } }, { 2, 6, 20 }, true }, { 1, { { 1, 280 } }, { 2, 6, 20 }, true } } },
	{ { 3, { 2, 20, 12 } },
	  2,
	  { { 1, { { 1, 760 } }, { 2, 6, 20 }, true }, { 1, { { 1, 0 } }, { 2, 6, 20 }, true } } },
	/* a source that must be decoded */
	{ { 2, { 18, 24 } }, 1, { { 1, { { 4, 0 } }, { 1, 24, 18 }, true } } },
	/* halves in two tensors, put in order and not */
	{ { 2, { 11, 14 } }, 1, { { 2, { { 2, 0 }, { 2, 100 } }, { 2, 7, 11 }, true } } },
	{ { 2, { 14, 11 } }, 1, { { 2, { { 2, 3 }, { 2, 200 } }, { 1, 14, 11 }, false } } },
	{ { 1, { 14 } }, 1, { { 1, { { 2, 20 } }, { 2, 7, 1 }, true } } },
	{ { 2, { 300000, 3 } }, 1, { { 1, { { 7, 0 } }, { 1, 3, 300000 }, true } } },
	{ { 2, { 130000, 9 } }, 1, { { 1, { { 8, 0 } }, { 1, 9, 130000 }, true } } },
};

static void put_block(const struct made *m, const struct uns_block *b, uint8_t *out)
{
	const uint64_t *len = b->len, share = len[0] * len[1] * len[2] / b->n_sources;
	const size_t es = uns_dtype_size(b->source[0].tensor->dtype);
	uint64_t p, r, c, from, to;

	for (p = 0; p < len[0]; p++)
		for (r = 0; r < len[1]; r++)
			for (c = 0; c < len[2]; c++) {
				from = (p * len[1] + r) * len[2] + c;
				to = b->reversed ? (c * len[1] + r) * len[0] + p : from;
				memcpy(out + to * es,
				       m->dense[b->source[from / share].tensor - m->cat->tensors] +
					       (b->source[from / share].first_elem + from % share) * es,
				       es);
			}
}

static struct file make_block_file(struct made *m, enum uns_dtype out)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	const struct uns_tensor *tensor;
	struct uns_err err = { 0 };
	struct file f;
	uint8_t *dense, *cast;
	size_t i, k, n, es;

	for (i = 0; i < sizeof(block_rows) / sizeof(block_rows[0]); i++) {
		const struct block_row *row = &block_rows[i];
		const enum uns_dtype dtype = m->cat->tensors[row->block[0].source[0].tensor].dtype;
		const enum uns_dtype to = uns_cast_exists(dtype, out) ? out : dtype;
		struct uns_block block[MAX_BLOCKS] = { 0 };

		n = (size_t)uns_shape_elems(&row->shape);
		es = uns_dtype_size(dtype);
		dense = malloc(n * es);
		for (k = 0; k < row->n; k++) {
			block[k] = (struct uns_block){ .n_sources = row->block[k].n_sources,
						       .reversed = row->block[k].reversed };
			memcpy(block[k].len, row->block[k].len, sizeof(block[k].len));
			block[k].source[0].tensor = &m->cat->tensors[row->block[k].source[0].tensor];
			block[k].source[0].first_elem = row->block[k].source[0].first_elem;
			block[k].source[1].tensor = &m->cat->tensors[row->block[k].source[1].tensor];
			block[k].source[1].first_elem = row->block[k].source[1].first_elem;
			put_block(m, &block[k], dense + k * (n / row->n) * es);
		}
		assert_int_equal(uns_block_tensor_make(m->cat, &row->shape, block, row->n, &m->arena, &tensor, &err),
				 0);
		cast = malloc(n * uns_dtype_size(to));
		uns_cast(dtype, dense, to, cast, n);
		uns_text_add(&want, cast, n * uns_dtype_size(to));
		uns_layout_tensor(&b, tensor, 0, n, to);
		free(cast);
		free(dense);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

/* Also where nothing fits into memory, or only one block does at a time. */
static void reads_blocks(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 2 << 20, 4096, 0 };
	struct made m;
	struct file f;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
		for (k = 0; k < 2; k++) {
			start(&m);
			add_raw_tensors(&m);
			open_engine(&m,
				    (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
			f = make_block_file(&m, k ? UNS_F32 : UNS_U8);
			check_windows(&m, &f, budgets[i] < 1 << 20 ? 40 : 300);
			free(f.want);
			finish(&m);
		}
}

static void refuses_other_casts(void **state)
{
	struct uns_layout_builder b;
	struct uns_err err = { 0 };
	struct uns_layout l;
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_I64, shape2(2, 2)), 2, 2);
	open_engine(&m, (struct uns_engine_options){ 0 });
	b = (struct uns_layout_builder){ .arena = &m.arena };
	uns_layout_tensor(&b, &m.cat->tensors[0], 0, 4, UNS_F32);
	assert_int_equal(uns_layout_build(&b, m.cat, &l, &err), 0);
	check_fails(&m, &l, -ENOTSUP, "model.w", "int64 cannot be converted to float32");
	finish(&m);
}

static void a_hole_is_an_error(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_range(&m, add_tensor(&m, UNS_F32, shape2(4, 4)), 0, 15);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -EBADMSG, "model.w", "40 of the 44 bytes");
	free(f.want);
	finish(&m);
}

static void an_alias_reads_the_other(void **state)
{
	struct uns_tensor alias;
	struct uns_layout_builder b;
	struct uns_err err = { 0 };
	struct uns_layout l;
	uint8_t buf[48];
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape2(3, 4)), 2, 4);
	alias = m.cat->tensors[0];
	alias.alias_of = 0;
	assert_int_equal(uns_catalog_add_tensor(m.cat, &alias, NULL, &err), 0);
	open_engine(&m, (struct uns_engine_options){ 0 });
	b = (struct uns_layout_builder){ .arena = &m.arena };
	uns_layout_tensor(&b, &m.cat->tensors[1], 0, 12, UNS_F32);
	assert_int_equal(uns_layout_build(&b, m.cat, &l, &err), 0);
	assert_int_equal(uns_read(m.backing, &l, buf, sizeof(buf), 0, &err), 48);
	assert_memory_equal(buf, m.dense[0], 48);
	finish(&m);
}

static void whole_files_pass_through(void **state)
{
	struct uns_err err = { 0 };
	struct uns_layout l;
	char buf[32];
	uint32_t file;
	struct made m;

	(void)state;
	start(&m);
	file = add_file(&m, "{\"hidden_size\": 64}", 19);
	open_engine(&m, (struct uns_engine_options){ 0 });
	assert_int_equal(uns_layout_of_file(&m.arena, m.cat, file, &l, &err), 0);
	assert_int_equal(uns_read(m.backing, &l, buf, sizeof(buf), 2, &err), 17);
	assert_memory_equal(buf, "hidden_size\": 64}", 17);
	finish(&m);
}

/* -- items -- */

static void reads_items(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32, UNS_F32, UNS_BF16 };
	struct uns_engine_stats stats;
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(40, 33));
	for (r = 0; r < 40; r += 2)
		add_item_rows(&m, id, r, 2, PLAIN, UNS_CODEC_NONE);
	id = add_tensor(&m, UNS_F32, shape2(30, 21));
	add_item_rows(&m, id, 0, 10, TRANSPOSED, UNS_CODEC_NONE);
	add_item_rows(&m, id, 10, 20, NOT_AT_START, UNS_CODEC_NONE);
	id = add_tensor(&m, UNS_F32, shape2(30, 21));
	add_item_rows(&m, id, 0, 7, PLAIN, UNS_CODEC_ZSTD);
	add_item_rows(&m, id, 7, 9, TRANSPOSED, UNS_CODEC_ZSTD);
	add_item_rows(&m, id, 16, 14, NOT_AT_START, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 16 << 20 });
	f = make_file(&m, out);
	check_window(&m, &f, 0, 13); /* a header needs no item */
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.source_reads, 0);
	check_windows(&m, &f, 500);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.decoded_pieces, 4); /* once each */
	assert_int_equal(stats.items_resolved, 14 + 2 + 1); /* the first third is left out */
	free(f.want);
	finish(&m);
}

/* An item that is not what the metadata says is refused, with what was expected. */
static void checks_items(void **state)
{
	static const struct {
		uint64_t rows;
		enum uns_dtype dtype;
		enum uns_codec codec;
		const char *a, *b;
	} cases[] = {
		{ 4, UNS_F32, UNS_CODEC_NONE, "shape [5, 3], the item has [4, 3]", "rank 7" },
		{ 5, UNS_I32, UNS_CODEC_NONE, "records dtype float32, the item has int32", "shard-0.bin" },
		{ 4, UNS_F32, UNS_CODEC_ZSTD, "shape [5, 3], the item has [4, 3]", "rank 7" },
		{ 5, UNS_I32, UNS_CODEC_ZSTD, "records dtype float32, the item has int32", "shard-0.bin" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made m;
		struct uns_box box;
		struct file f;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, cases[i].dtype, shape2(5, 3));
		add_item_rows(&m, id, 0, cases[i].rows, PLAIN, cases[i].codec);
		m.cat->tensors[id].dtype = UNS_F32;
		box = *m.cat->pieces[0].box;
		box.len[0] = 5;
		m.cat->pieces[0].box = &box;
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
		f = make_file(&m, NULL);
		check_fails(&m, &f.layout, -EBADMSG, cases[i].a, cases[i].b);
		check_fails(&m, &f.layout, -EBADMSG, "tensor model.w at byte 6", cases[i].b);
		free(f.want);
		finish(&m);
	}
}

/* Compressed bytes that are cut, damaged, or hold far more than the metadata says. */
static void refuses_damaged_zstd(void **state)
{
	static const struct {
		uint64_t rows_claimed;
		long cut, flip;
		const char *why;
	} cases[] = {
		{ 20000, 100, 0, "truncated" },
		{ 20000, 0, 3, "no zstd frame" },
		{ 20000, 0, 200, "zstd data" },
		{ 5, 0, 0, "holds more than the" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made m;
		struct uns_box box;
		struct file f;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, UNS_F32, shape2(20000, 3));
		add_item_rows(&m, id, 0, 20000, PLAIN, UNS_CODEC_ZSTD);
		m.cat->pieces[0].length_bytes -= cases[i].cut;
		m.cat->pieces[0].offset_bytes += cases[i].flip;
		m.cat->pieces[0].length_bytes -= cases[i].flip;
		box = *m.cat->pieces[0].box;
		box.len[0] = cases[i].rows_claimed;
		m.cat->pieces[0].box = &box;
		m.cat->tensors[0].shape.dim[0] = cases[i].rows_claimed;
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 16 << 20 });
		f = make_file(&m, NULL);
		check_fails(&m, &f.layout, -EBADMSG, cases[i].why, "shard-0.bin");
		free(f.want);
		finish(&m);
	}
}

/* A sequential pass decompresses each item once, though the memory holds less than one of them. */
static void decodes_once_with_little_memory(void **state)
{
	static const uint64_t budgets[] = { 0, 100, 200 << 10, 700 << 10, 64 << 20 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;
		uint64_t at, r;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, UNS_F32, shape2(400, 1000));
		for (r = 0; r < 400; r += 100)
			add_item_rows(&m, id, r, 100, r == 200 ? TRANSPOSED : PLAIN, UNS_CODEC_ZSTD);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 1 << 30 });
		f = make_file(&m, NULL);
		for (at = 0; at < f.layout.size_bytes; at += 32 << 10)
			check_window(&m, &f, at, 32 << 10);
		for (at = 0; at < f.layout.size_bytes; at += 100 << 10)
			check_window(&m, &f, at, 32 << 10);
		uns_engine_stats(m.engine, &stats);
		assert_int_equal(stats.decoded_pieces, 3); /* make_file leaves out the first third */
		assert_true(stats.cache_bytes <= budgets[i]);
		free(f.want);
		finish(&m);
	}
}

static void says_when_nothing_fits(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(100, 1000));
	add_item_rows(&m, id, 0, 100, PLAIN, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1000, .spill_bytes = 2000 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENOSPC, "cache_size", m.dir);
	free(f.want);
	finish(&m);
}

/* -- storage that makes one wait -- */

static _Atomic unsigned waiting, most_waiting, wanted_waiting;

/* The engine's `delay_read_us`, in place of libc's. A test may want so many reads to wait at once: none
 * comes back before they do, or before it is clear that they never will. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	unsigned n = ++waiting, most = most_waiting, i;

	while (n > most && !atomic_compare_exchange_weak(&most_waiting, &most, n))
		;
	for (i = 0; most_waiting < wanted_waiting && i < 3000; i++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
	clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
	waiting--;
	return 0;
}

static void want_waiting(unsigned n)
{
	wanted_waiting = n;
	most_waiting = 0;
}

/* Storage that answers late must not make 64 items wait one after the other. */
static void resolves_in_parallel(void **state)
{
	struct uns_engine_stats stats;
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(64, 33));
	for (r = 0; r < 64; r++)
		add_item_rows(&m, id, r, 1, PLAIN, UNS_CODEC_NONE);
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1000, .n_threads = 32 });
	f = make_file(&m, NULL);
	want_waiting(16);
	check_window(&m, &f, f.layout.size_bytes - 10, 1);
	assert_int_equal(uns_backing_resolve(m.backing, &m.cat->tensors[0], NULL), 0);
	assert_true(most_waiting >= 16);
	want_waiting(0);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.items_resolved, 64);
	free(f.want);
	finish(&m);
}

/* -- sources that change -- */

static struct file one_tensor(struct made *m, struct uns_engine_options options)
{
	add_grid(m, add_tensor(m, UNS_F32, shape2(50, 100)), 50, 100);
	open_engine(m, options);
	return make_file(m, NULL);
}

static void a_replaced_file_still_reads_while_open(void **state)
{
	struct uns_engine_stats stats;
	char from[256], to[256];
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	f = one_tensor(&m, (struct uns_engine_options){ 0 });
	check_window(&m, &f, 0, 100);
	put(&m, "new", "other bytes", 11);
	strcpy(from, full_path(&m, "new"));
	strcpy(to, full_path(&m, "shard-0.bin"));
	assert_int_equal(rename(from, to), 0);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.stale, 0);
	free(f.want);
	finish(&m);
}

/* A file that was read through a shard with two names, of which one is gone since. */
static struct file lose_a_link(struct made *m)
{
	char from[256], to[256];
	struct file f;

	start(m);
	add_grid(m, add_tensor(m, UNS_F32, shape2(50, 100)), 50, 100);
	strcpy(from, full_path(m, "shard-0.bin"));
	strcpy(to, full_path(m, "link"));
	assert_int_equal(link(from, to), 0);
	/* The link changed ctime: look at the file again, as a new catalog would. */
	assert_int_equal(uns_root_stat(m->root, "shard-0.bin", true, &m->cat->files[0].stat, NULL), 0);
	open_engine(m, (struct uns_engine_options){ 0 });
	f = make_file(m, NULL);
	check_window(m, &f, 0, 100);
	usleep(20000);
	assert_int_equal(unlink(to), 0);
	return f;
}

static void a_lost_link_does_not_matter(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	f = lose_a_link(&m);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	free(f.want);
	finish(&m);
}

static void rewrite(const struct made *m)
{
	int fd = open(full_path(m, "shard-0.bin"), O_WRONLY);

	assert_int_equal(pwrite(fd, "X", 1, 50), 1);
	close(fd);
}

/* In place, with its modification time put back: only ctime tells. */
static void rewrite_quietly(const struct made *m)
{
	const char *path = full_path(m, "shard-0.bin");
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	rewrite(m);
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ st.st_atim, st.st_mtim }, 0), 0);
}

static void a_write_after_a_lost_link_matters(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	f = lose_a_link(&m);
	check_window(&m, &f, 0, 100);
	usleep(20000);
	rewrite_quietly(&m);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

static void cut(const struct made *m)
{
	assert_int_equal(truncate(full_path(m, "shard-0.bin"), 1000), 0);
}

static void append(const struct made *m)
{
	int fd = open(full_path(m, "shard-0.bin"), O_WRONLY | O_APPEND);

	assert_int_equal(write(fd, "X", 1), 1);
	close(fd);
}

static void take_away(const struct made *m)
{
	assert_int_equal(unlink(full_path(m, "shard-0.bin")), 0);
}

static void replace(const struct made *m)
{
	char from[256];
	uint8_t *bytes = calloc(1, 30000);

	put(m, "new", bytes, 30000);
	free(bytes);
	strcpy(from, full_path(m, "new"));
	assert_int_equal(rename(from, full_path(m, "shard-0.bin")), 0);
}

/* open_first: the engine holds a descriptor when the change happens. */
static void changed_files_are_stale(void **state)
{
	static const struct {
		void (*change)(const struct made *m);
		bool open_first;
		const char *why;
	} cases[] = {
		{ rewrite, true, "was written to" }, { rewrite, false, "was written to" },
		{ cut, true, "has 1000 now" },       { cut, false, "has 1000 now" },
		{ append, true, "bytes when" },      { append, false, "bytes when" },
		{ take_away, false, "was removed" }, { replace, false, "replaced by another" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;

		start(&m);
		f = one_tensor(&m, (struct uns_engine_options){ 0 });
		if (cases[i].open_first)
			check_window(&m, &f, 0, 100);
		usleep(20000); /* time stamps have the kernel's tick */
		cases[i].change(&m);
		check_fails(&m, &f.layout, -ESTALE, cases[i].why, "shard-0.bin");
		uns_engine_stats(m.engine, &stats);
		assert_int_equal(stats.stale, 1);
		free(f.want);
		finish(&m);
	}
}

static void a_changed_file_is_not_served_from_the_cache(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(100, 10));
	add_item_rows(&m, id, 0, 100, PLAIN, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	usleep(20000);
	rewrite(&m);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

static void a_missing_file_is_named(void **state)
{
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE, .range = { 0, 4 }, .length_bytes = 16 };
	struct uns_err err = { 0 };
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_tensor(&m, UNS_F32, shape2(2, 2));
	assert_int_equal(uns_catalog_add_file(m.cat, m.root, "__3_0.distcp", &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m.cat, &piece, &err), 0);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENODATA, "__3_0.distcp is missing", m.dir);
	free(f.want);
	finish(&m);
}

/* -- slow storage -- */

static void waits_for_all_pieces_at_once(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape2(100, 33)), 1, 33); /* more than are taken at once */
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1000, .n_threads = 32 });
	f = make_file(&m, NULL);
	want_waiting(16);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	assert_true(most_waiting >= 16);
	want_waiting(0);
	free(f.want);
	finish(&m);
}

static void reads_any_window_of_slow_storage(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32,  UNS_BF16, UNS_U8,  UNS_F16,  UNS_I64,
					      UNS_BF16, UNS_F16,  UNS_F32, UNS_BF16, UNS_F64 };
	struct made m;
	struct file f;
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		start(&m);
		add_raw_tensors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20, .delay_read_us = 1 });
		f = make_file(&m, i ? out : NULL);
		check_windows(&m, &f, 100);
		free(f.want);
		finish(&m);
	}
}

static void slow_items_of_all_kinds(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(40, 33));
	for (r = 0; r < 40; r += 4) {
		add_item_rows(&m, id, r, 1, PLAIN, UNS_CODEC_NONE);
		add_item_rows(&m, id, r + 1, 1, PLAIN, UNS_CODEC_ZSTD);
		add_item_rows(&m, id, r + 2, 2, TRANSPOSED, r % 8 ? UNS_CODEC_ZSTD : UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1000, .delay_read_us = 1, .spill_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 200);
	free(f.want);
	finish(&m);
}

static void a_missing_one_of_many_is_named(void **state)
{
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .box = &(struct uns_box){ 2, { 7, 0 }, { 1, 33 } },
				   .length_bytes = 33 * 2 };
	struct uns_err err = { 0 };
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(9, 33));
	for (r = 0; r < 7; r++)
		add_raw_box(&m, id, (struct uns_box){ 2, { r, 0 }, { 1, 33 } });
	assert_int_equal(uns_catalog_add_file(m.cat, m.root, "__3_0.distcp", &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m.cat, &piece, &err), 0);
	add_raw_box(&m, id, (struct uns_box){ 2, { 8, 0 }, { 1, 33 } });
	open_engine(&m, (struct uns_engine_options){ .delay_read_us = 1 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENODATA, "__3_0.distcp is missing", m.dir);
	free(f.want);
	finish(&m);
}

/* -- many at once -- */

struct reader {
	struct made m; /* a copy with its own random numbers; the rest is shared */
	const struct file *f;
};

static void *read_windows(void *arg)
{
	struct reader *r = arg;

	check_windows(&r->m, r->f, 150);
	return NULL;
}

static void read_by_threads(struct made *m, const struct file *f)
{
	struct reader r[8];
	pthread_t thread[8];
	size_t i;

	for (i = 0; i < 8; i++) {
		r[i] = (struct reader){ *m, f };
		r[i].m.random += i;
		assert_int_equal(pthread_create(&thread[i], NULL, read_windows, &r[i]), 0);
	}
	for (i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
}

/* -- sums -- */

static double number(const struct made *m, uint32_t id, enum uns_dtype as, uint64_t i)
{
	const enum uns_dtype is = m->cat->tensors[id].dtype;
	uint8_t one[8];
	double x;

	uns_cast(is, m->dense[id] + i * uns_dtype_size(is), as, one, 1);
	uns_cast(as, one, UNS_F64, &x, 1);
	return x;
}

/* The number of a dtype that is nearest to x; of two, the even one. torch's own cast may be one off, as it rounds to
 * fp32 first. */
static void put_nearest(double x, enum uns_dtype to, uint8_t *out)
{
	uint16_t code, best;
	double y, distance;
	int step;

	uns_cast(UNS_F64, &x, to, out, 1);
	if (uns_dtype_size(to) != 2)
		return;
	memcpy(&code, out, 2);
	uns_cast(to, &code, UNS_F64, &y, 1);
	distance = fabs(y - x);
	best = code;
	for (step = -1; step <= 1; step += 2) {
		const uint16_t other = (uint16_t)(code + step);

		uns_cast(to, &other, UNS_F64, &y, 1);
		if (fabs(y - x) < distance || (fabs(y - x) == distance && other % 2 == 0 && code % 2))
			best = other;
	}
	memcpy(out, &best, 2);
}

/* base + scale * left right', of catalog tensors base, left, right; `turned`: right' is stored, so that it is put in
 * order by blocks; `by`, if not 0: the catalog tensor of the scale, and how many elements of its own go with each. */
static const struct sum_row {
	uint32_t base, left, right;
	bool turned;
	uint64_t rows, columns, inner;
	double scale;
	enum uns_dtype left_as, out;
	uint32_t by;
	uint64_t behind;
	bool normed;
	uint64_t batch, first; /* of the product; of right */
} sum_rows[] = {
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 1, UNS_F16, UNS_F32, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 2.5, UNS_F16, UNS_F16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 2.5, UNS_BF16, UNS_F64, 0, 0, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_F32, 0, 0, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_BF16, UNS_BF16, 0, 0, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 6, 600, true, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_BF16, 7, 41, true, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 600, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 8, 1, false, 0, 0 },
	{ 3, 4, 5, false, 33, 41, 301, 0.1, UNS_F32, UNS_F32, 7, 1, false, 0, 0 },
	{ 0, 2, 1, true, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 6, false, 0, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_F32, 0, 0, false, 35, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 6, 600, true, 35, 0 },
	{ 0, 2, 9, false, 70, 600, 5, 0.75, UNS_F16, UNS_BF16, 0, 0, false, 0, 3000 },
};

static void add_factors(struct made *m)
{
	add_grid(m, add_tensor(m, UNS_BF16, shape2(70, 600)), 30, 250);
	add_grid(m, add_tensor(m, UNS_F32, shape2(5, 600)), 5, 600);
	add_grid(m, add_tensor(m, UNS_F16, shape2(70, 5)), 40, 5);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 41)), 33, 41);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 301)), 10, 301);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(41, 301)), 41, 100);
	add_grid(m, add_tensor(m, UNS_F32, shape2(70, 1)), 40, 1);
	add_grid(m, add_tensor(m, UNS_F32, shape2(33, 1)), 33, 1);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(1, 600)), 1, 170);
	add_grid(m, add_tensor(m, UNS_BF16, shape2(1200, 5)), 500, 5);
}

static const struct uns_tensor *put_sum(struct made *m, const struct sum_row *row, struct uns_text *want)
{
	const struct uns_tensor *t = m->cat->tensors, *made;
	const struct uns_shape turned = shape2(row->columns, row->inner);
	const struct uns_block block = { .source = { { &t[row->right], 0 } },
					 .n_sources = 1,
					 .len = { 1, row->inner, row->columns },
					 .reversed = true };
	struct uns_term term[] = { { .times = 1, .left = { &t[row->base], t[row->base].dtype, 0 } },
				   { .times = row->scale,
				     .left = { &t[row->left], row->left_as, 0 },
				     .right = { &t[row->right], t[row->right].dtype, row->first },
				     .inner = row->inner,
				     .batch = row->batch } };
	struct uns_sum all = { .term = term, .n = 2, .columns = row->columns, .divisor = 1 };
	struct uns_err err = { 0 };
	uint8_t one[8];
	uint64_t i, j, k, before;
	double sum[600], squares, times;

	if (row->by)
		all.scale = (struct uns_scale){ { &t[row->by], UNS_F32, 0 }, row->behind, row->normed };
	if (row->turned)
		assert_int_equal(
			uns_block_tensor_make(m->cat, &turned, &block, 1, &m->arena, &term[1].right.tensor, &err), 0);
	assert_int_equal(uns_sum_tensor_make(&t[row->base], row->out, &all, &m->arena, &made, &err), 0);
	for (i = 0; i < row->rows; i++) {
		before = row->batch ? i / row->batch * row->columns : 0;
		squares = 0;
		for (j = 0; j < row->columns; j++) {
			sum[j] = 0;
			for (k = 0; k < row->inner; k++)
				sum[j] += number(m, row->left, row->left_as, i * row->inner + k) *
					  number(m, row->right, t[row->right].dtype,
						 row->turned ? k * row->columns + j
							     : row->first + (before + j) * row->inner + k);
			sum[j] = number(m, row->base, t[row->base].dtype, i * row->columns + j) + row->scale * sum[j];
			squares += sum[j] * sum[j];
		}
		for (j = 0; j < row->columns; j++) {
			k = row->by ? (i * row->columns + j) / row->behind % uns_shape_elems(&t[row->by].shape) : 0;
			times = row->by ? number(m, row->by, UNS_F32, k) : 1;
			times = row->normed ? times / sqrt(squares) : times;
			put_nearest(times * sum[j], row->out, one);
			uns_text_add(want, one, uns_dtype_size(row->out));
		}
	}
	return made;
}

static struct file make_sum_file(struct made *m)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	const struct uns_tensor *made;
	struct uns_err err = { 0 };
	struct file f;
	size_t i;

	uns_layout_literal(&b, "odd", 3);
	uns_text_str(&want, "odd");
	for (i = 0; i < sizeof(sum_rows) / sizeof(sum_rows[0]); i++) {
		made = put_sum(m, &sum_rows[i], &want);
		uns_layout_tensor(&b, made, 0, uns_shape_elems(&made->shape), sum_rows[i].out);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

/* By many threads, also where what is put in order does not fit into memory. */
static void reads_sums(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 0 };
	struct made m;
	struct file f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
		start(&m);
		add_factors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
		f = make_sum_file(&m);
		check_windows(&m, &f, 100);
		if (!i)
			read_by_threads(&m, &f);
		free(f.want);
		finish(&m);
	}
}

/* Each of the files that a sum is made of, also the one that is kept in the cache. */
static void a_sum_of_changed_files_is_stale(void **state)
{
	static const char *const files[] = { "shard-0.bin", "shard-9.bin", "shard-10.bin" };
	struct made m;
	struct file f;
	size_t i;
	int fd;

	(void)state;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		start(&m);
		add_factors(&m);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
		f = make_sum_file(&m);
		check_window(&m, &f, 0, 10000);
		usleep(20000); /* time stamps have the kernel's tick */
		fd = open(full_path(&m, files[i]), O_WRONLY);
		assert_int_equal(pwrite(fd, "X", 1, 0), 1);
		close(fd);
		check_fails(&m, &f.layout, -ESTALE, "was written to", files[i]);
		free(f.want);
		finish(&m);
	}
}

/* -- joined tensors -- */

enum { MAX_PARTS = 4 };

/* Parts by the number of their tensor in the catalog; `by_default`: one behind the other. */
static const struct joined_row {
	struct uns_shape shape;
	size_t n;
	struct {
		size_t tensor;
		uint64_t first_elem, n_elems;
	} part[MAX_PARTS];
	bool by_default;
	struct uns_joined_order order;
} joined_rows[] = {
	{ { 2, { 50, 4 } }, 3, { { 1, 40, 100 }, { 3, 7, 60 }, { 1, 500, 40 } }, true, { 0 } },
	{ { 1, { 160 } }, 2, { { 1, 40, 100 }, { 1, 140, 60 } }, true, { 0 } },
	{ { 2, { 41, 29 } }, 2, { { 3, 0, 29 }, { 3, 29, 1160 } }, true, { 0 } },
	/* columns of gate and up in turns, and behind each other; rows in turns */
	{ { 3, { 2, 5, 8 } },
	  4,
	  { { 1, 0, 20 }, { 3, 100, 20 }, { 1, 700, 20 }, { 3, 3, 20 } },
	  false,
	  { 2, 40, 0, { { 5, 1 }, { 4, 5 }, { 2, 20 } } } },
	{ { 3, { 2, 5, 8 } },
	  4,
	  { { 1, 0, 20 }, { 3, 100, 20 }, { 1, 700, 20 }, { 3, 3, 20 } },
	  false,
	  { 2, 40, 0, { { 5, 1 }, { 2, 20 }, { 4, 5 } } } },
	{ { 3, { 1, 8, 5 } },
	  2,
	  { { 1, 0, 20 }, { 3, 100, 20 } },
	  false,
	  { 1, 40, 0, { { 4, 5 }, { 2, 20 }, { 5, 1 } } } },
	/* every second column of a matrix as rows; the same of each row of another */
	{ { 2, { 14, 20 } }, 1, { { 3, 29, 580 } }, false, { 1, 580, 1, { { 0 }, { 14, 2 }, { 20, 29 } } } },
	{ { 2, { 37, 26 } }, 1, { { 0, 0, 1961 } }, false, { 37, 53, 1, { { 0 }, { 0 }, { 26, 2 } } } },
	/* a source that must be decoded; planes larger than scratch memory */
	{ { 2, { 18, 24 } }, 1, { { 4, 0, 432 } }, false, { 1, 432, 0, { { 0 }, { 18, 1 }, { 24, 18 } } } },
	{ { 2, { 24, 18 } }, 2, { { 4, 0, 200 }, { 4, 200, 232 } }, true, { 0 } },
	{ { 2, { 300000, 3 } },
	  1,
	  { { 7, 0, 900000 } },
	  false,
	  { 1, 900000, 0, { { 0 }, { 300000, 1 }, { 3, 300000 } } } },
	{ { 1, { 0 } }, 1, { { 6, 0, 0 } }, true, { 0 } },
};

/* What the row's elements are, by the definition of the order. */
static uint8_t *joined_dense(const struct made *m, const struct joined_row *row)
{
	const size_t es = uns_dtype_size(m->cat->tensors[row->part[0].tensor].dtype);
	const struct uns_joined_loop *l = row->order.loop;
	UNS_CLEANUP(uns_text_fini) struct uns_text source = UNS_TEXT_INIT;
	struct uns_text out = UNS_TEXT_INIT;
	uint64_t p, i, j, k, from;

	for (p = 0; p < row->n; p++)
		uns_text_add(&source, m->dense[row->part[p].tensor] + row->part[p].first_elem * es,
			     row->part[p].n_elems * es);
	if (row->by_default)
		uns_text_add(&out, source.p, source.len);
	for (p = 0; !row->by_default && p < row->order.n_planes; p++)
		for (i = 0; i < (l[0].n ? l[0].n : 1); i++)
			for (j = 0; j < (l[1].n ? l[1].n : 1); j++)
				for (k = 0; k < l[2].n; k++) {
					from = p * row->order.plane_elems + row->order.first_elem;
					from += i * l[0].step_elems + j * l[1].step_elems + k * l[2].step_elems;
					uns_text_add(&out, source.p + from * es, es);
				}
	return (uint8_t *)uns_text_take(&out, NULL);
}

static struct uns_named_tensor make_joined(struct made *m, const struct joined_row *row, enum uns_dtype out)
{
	struct uns_named_tensor part[MAX_PARTS], made;
	struct uns_slice *slice;
	struct uns_err err = { 0 };
	size_t i;

	for (i = 0; i < row->n; i++) {
		slice = UNS_NEW(&m->arena, struct uns_slice);
		*slice = (struct uns_slice){ .first_elem = row->part[i].first_elem,
					     .shape = { 1, { row->part[i].n_elems } } };
		part[i] = (struct uns_named_tensor){ "part", &m->cat->tensors[row->part[i].tensor], out, slice };
		if (!uns_cast_exists(part[i].tensor->dtype, out))
			part[i].out = part[i].tensor->dtype;
	}
	assert_int_equal(uns_joined_make(m->cat, "joined", part, row->n, row->by_default ? NULL : &row->order,
					 &row->shape, &m->arena, &made, &err),
			 0);
	assert_true(uns_shape_equal(uns_named_shape(&made), &row->shape));
	return made;
}

static struct file make_joined_file(struct made *m, enum uns_dtype out)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	struct file f;
	size_t i, n;

	uns_layout_literal(&b, "odd", 3);
	uns_text_str(&want, "odd");
	for (i = 0; i < sizeof(joined_rows) / sizeof(joined_rows[0]); i++) {
		const struct uns_named_tensor t = make_joined(m, &joined_rows[i], out);
		UNS_CLEANUP(uns_free_p) uint8_t *dense = joined_dense(m, &joined_rows[i]), *cast = NULL;

		n = (size_t)uns_shape_elems(&joined_rows[i].shape);
		cast = malloc(n * uns_dtype_size(t.out) + 1);
		uns_cast(t.tensor->dtype, dense, t.out, cast, n);
		uns_text_add(&want, cast, n * uns_dtype_size(t.out));
		uns_named_layout(&b, &t);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

/* Also where no plane fits into memory, and by many threads. */
static void reads_joined(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 4096, 0 };
	struct made m;
	struct file f;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
		for (k = 0; k < 2; k++) {
			start(&m);
			add_raw_tensors(&m);
			open_engine(&m,
				    (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
			f = make_joined_file(&m, k ? UNS_F32 : UNS_U8);
			check_windows(&m, &f, i ? 20 : 100);
			if (!i && !k)
				read_by_threads(&m, &f);
			free(f.want);
			finish(&m);
		}
}

static void what_lies_together_is_a_slice(void **state)
{
	struct made m;
	struct uns_named_tensor a, b;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	a = make_joined(&m, &joined_rows[1], UNS_F32);
	assert_ptr_equal(a.tensor, &m.cat->tensors[1]);
	assert_int_equal(a.slice->first_elem, 40);
	a = make_joined(&m, &joined_rows[2], UNS_F32);
	assert_ptr_equal(a.tensor, &m.cat->tensors[3]);
	assert_null(a.slice);
	/* the same elements are known again, others are not */
	a = make_joined(&m, &joined_rows[3], UNS_F32);
	b = make_joined(&m, &joined_rows[3], UNS_F32);
	assert_true(a.tensor != b.tensor && a.tensor->joined->id[0] == b.tensor->joined->id[0] &&
		    a.tensor->joined->id[1] == b.tensor->joined->id[1]);
	b = make_joined(&m, &joined_rows[4], UNS_F32);
	assert_true(a.tensor->joined->id[0] != b.tensor->joined->id[0] &&
		    a.tensor->joined->id[1] != b.tensor->joined->id[1]);
	finish(&m);
}

static void refuses_what_does_not_fit_together(void **state)
{
	const struct uns_joined_order beyond = { 1, 6, 1, { { 0 }, { 2, 3 }, { 3, 1 } } };
	const struct uns_joined_order fewer = { 1, 6, 0, { { 0 }, { 1, 3 }, { 3, 1 } } };
	const struct uns_shape shape = shape2(2, 3), more = shape2(4, 3);
	struct uns_named_tensor part[2], out;
	struct uns_err err[4] = { { 0 } };
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape), 2, 3);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape), 2, 3);
	open_engine(&m, (struct uns_engine_options){ 0 });
	part[0] = (struct uns_named_tensor){ "a", &m.cat->tensors[0], UNS_F32, NULL };
	part[1] = (struct uns_named_tensor){ "b", &m.cat->tensors[1], UNS_F32, NULL };
	assert_int_equal(uns_joined_make(m.cat, "x", part, 2, NULL, &more, &m.arena, &out, &err[0]), -EBADMSG);
	assert_string_equal(err[0].text, "a has dtype float32, and b has bfloat16");
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, NULL, &more, &m.arena, &out, &err[1]), -EBADMSG);
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, &beyond, &shape, &m.arena, &out, &err[2]), -EBADMSG);
	assert_int_equal(uns_joined_make(m.cat, "x", part, 1, &fewer, &shape, &m.arena, &out, &err[3]), -EBADMSG);
	assert_string_equal(err[3].text, "a has the shape [2, 3], which does not fit x");
	finish(&m);
}

/* Of a plane that was put in order earlier, too. */
static void a_joined_tensor_of_changed_files_is_stale(void **state)
{
	struct made m;
	struct file f;
	int fd;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
	f = make_joined_file(&m, UNS_U8);
	check_window(&m, &f, 0, (size_t)f.layout.size_bytes);
	usleep(20000); /* time stamps have the kernel's tick */
	fd = open(full_path(&m, "shard-0.bin"), O_WRONLY);
	assert_int_equal(pwrite(fd, "X", 1, 0), 1);
	close(fd);
	check_fails(&m, &f.layout, -ESTALE, "was written to", "shard-0.bin");
	free(f.want);
	finish(&m);
}

/* Zeros, in a file without blocks. */
static void add_empty(struct made *m, uint64_t rows, uint64_t columns)
{
	const struct uns_tensor t = { .name = "w",
				      .key = "model.w",
				      .root = "",
				      .dtype = UNS_BF16,
				      .shape = shape2(rows, columns),
				      UNS_TENSOR_ALONE };
	struct uns_piece piece = {
		.kind = UNS_PIECE_RANGE, .range = { 0, rows * columns }, .rank = -1, .length_bytes = rows * columns * 2
	};
	struct uns_err err = { 0 };
	char name[32];
	uint32_t id;

	snprintf(name, sizeof(name), "shard-%u.bin", m->n_files++);
	put(m, name, "", 0);
	assert_int_equal(truncate(full_path(m, name), (off_t)piece.length_bytes), 0);
	assert_int_equal(uns_catalog_add_file(m->cat, m->root, name, &piece.file, &err), 0);
	assert_int_equal(uns_catalog_add_tensor(m->cat, &t, &id, &err), 0);
	assert_int_equal(uns_catalog_add_piece(m->cat, &piece, &err), 0);
}

static long peak_kib(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Reading all of a sum takes a few MiB beside the caller's buffer, however large it is: the first test, as it looks at
 * the process's peak. */
static void a_sum_needs_little_memory(void **state)
{
#ifdef __SANITIZE_THREAD__ /* where memory is not what it is elsewhere */
	enum { ROWS = 1 << 10, COLUMNS = 1024, MOST_KIB = 12 << 10 };
#else
	enum { ROWS = 24 << 10, COLUMNS = 1024, MOST_KIB = 12 << 10 };
#endif
	const size_t size = (size_t)ROWS * COLUMNS * 2;
	uint8_t *buf = malloc(size);
	const struct uns_tensor *t, *made;
	struct uns_layout_builder b = { 0 };
	struct uns_layout layout;
	struct uns_err err = { 0 };
	struct made m;
	long before;

	(void)state;
	start(&m);
	b.arena = &m.arena;
	add_empty(&m, ROWS, COLUMNS);
	add_empty(&m, ROWS, 8);
	add_empty(&m, COLUMNS, 8);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 8 << 20 });
	t = m.cat->tensors;
	{
		const struct uns_term term[] = {
			{ .times = 1, .left = { &t[0], UNS_BF16, 0 } },
			{ .times = 1, .left = { &t[1], UNS_BF16, 0 }, .right = { &t[2], UNS_BF16, 0 }, .inner = 8 }
		};

		const struct uns_sum sum = { .term = term, .n = 2, .columns = COLUMNS, .divisor = 1 };

		assert_int_equal(uns_sum_tensor_make(&t[0], UNS_BF16, &sum, &m.arena, &made, &err), 0);
	}
	uns_layout_tensor(&b, made, 0, size / 2, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, m.cat, &layout, &err), 0);
	memset(buf, 1, size);
	before = peak_kib();
	assert_int_equal(uns_read(m.backing, &layout, buf, size, 0, &err), (ssize_t)size);
	assert_true(peak_kib() - before < MOST_KIB);
	assert_int_equal(buf[0], 0);
	assert_memory_equal(buf, buf + 1, size - 1);
	free(buf);
	finish(&m);
}

static void refuses_what_is_no_sum(void **state)
{
	const struct uns_tensor *made;
	struct uns_err err = { 0 };
	struct made m;

	(void)state;
	start(&m);
	add_empty(&m, 20, 30);
	add_empty(&m, 20, 4);
	add_empty(&m, 30, 4);
	add_empty(&m, 100, 1);
	m.cat->tensors[2].dtype = UNS_I64;
	{
		const struct uns_tensor *t = m.cat->tensors;
		const struct uns_term other_size = { .left = { &t[1], UNS_BF16, 0 } };
		const struct uns_term integers = { .left = { &t[1], UNS_BF16, 0 },
						   .right = { &t[2], UNS_I64, 0 },
						   .inner = 4 };
		const struct uns_term same = { .times = 1, .left = { &t[0], UNS_BF16, 0 } };

		const struct {
			const struct uns_term *term;
			uint64_t columns;
			const struct uns_tensor *by;
			uint64_t behind;
			bool normed;
			enum uns_dtype out;
			int code;
		} rows[] = { { &other_size, 30, NULL, 0, false, UNS_BF16, -EBADMSG },
			     { &integers, 30, NULL, 0, false, UNS_BF16, -ENOTSUP },
			     { &integers, 7, NULL, 0, false, UNS_BF16, -EBADMSG },
			     { &integers, 30, NULL, 0, false, UNS_I64, -ENOTSUP },
			     { &same, 30, NULL, 0, false, UNS_BF16, 0 },
			     { &same, 0, &t[1], 1, false, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 1, false, UNS_BF16, 0 },
			     { &same, 0, &t[3], 3, false, UNS_BF16, 0 },
			     { &same, 0, &t[3], 7, false, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 3, true, UNS_BF16, -EBADMSG },
			     { &same, 0, &t[3], 6, true, UNS_BF16, 0 },
			     { &same, 0, &t[2], 5, false, UNS_BF16, -ENOTSUP } };
		size_t i;

		for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			const struct uns_sum sum = {
				.term = rows[i].term,
				.n = 1,
				.columns = rows[i].columns,
				.divisor = 1,
				.scale = { { rows[i].by, UNS_BF16, 0 }, rows[i].behind, rows[i].normed }
			};

			assert_int_equal(uns_sum_tensor_make(&t[0], rows[i].out, &sum, &m.arena, &made, &err),
					 rows[i].code);
		}
	}
	finish(&m);
}

static void many_threads_read(void **state)
{
	static const uint64_t budgets[] = { 0, 300 << 10, 16 << 20 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;
		uint32_t id;
		uint64_t r;

		start(&m);
		id = add_tensor(&m, UNS_BF16, shape2(40, 330));
		for (r = 0; r < 40; r += 2)
			add_item_rows(&m, id, r, 2, PLAIN, UNS_CODEC_NONE);
		id = add_tensor(&m, UNS_F32, shape2(60, 210));
		for (r = 0; r < 60; r += 10)
			add_item_rows(&m, id, r, 10, r % 20 ? TRANSPOSED : PLAIN, UNS_CODEC_ZSTD);
		open_engine(&m, (struct uns_engine_options){
					.cache_bytes = budgets[i], .spill_bytes = 200 << 10, .max_open_files = 3 });
		f = make_file(&m, NULL);
		read_by_threads(&m, &f);
		uns_engine_stats(m.engine, &stats);
		assert_true(stats.open_files <= 3);
		assert_true(stats.cache_bytes <= budgets[i]);
		assert_true(stats.spill_bytes <= 200 << 10);
		free(f.want);
		finish(&m);
	}
}

static void descriptors_are_bounded(void **state)
{
	struct uns_engine_stats stats;
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape2(60, 10)), 1, 10);
	open_engine(&m, (struct uns_engine_options){ .max_open_files = 4 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 100);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.open_files, 4);
	uns_backing_free(m.backing);
	m.backing = NULL;
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.open_files, 0);
	free(f.want);
	finish(&m);
}

/* -- comparison -- */

static void compares_tensors(void **state)
{
	static const struct {
		size_t a, b;
		bool equal;
		const char *how;
	} cases[] = {
		{ 0, 1, true, "recorded CRCs" }, { 0, 2, true, "comparison" },     { 1, 3, false, "recorded CRCs" },
		{ 2, 3, false, "comparison" },   { 4, 0, true, "comparison" },     { 4, 3, false, "comparison" },
		{ 5, 0, true, "comparison" },    { 6, 0, true, "recorded CRCs" },  { 6, 3, false, "recorded CRCs" },
		{ 7, 8, true, "recorded CRCs" }, { 7, 9, false, "recorded CRCs" }, { 7, 0, true, "comparison" },
	};
	struct made m;
	size_t i, n;
	bool equal;

	(void)state;
	start(&m);
	for (i = 0; i < 10; i++) {
		const bool columns = i >= 7;
		const size_t rows = i == 6 ? 10 : 20;
		uint32_t id = add_tensor(&m, UNS_F32, shape2(40, 25));

		memcpy(m.dense[id], m.dense[0], 4000);
		if (i == 3 || i == 9)
			m.dense[id][3999] ^= 1;
		if (i == 2)
			add_grid(&m, id, 20, 7);
		if (columns) {
			add_item_columns(&m, id, 0, 12);
			add_item_columns(&m, id, 12, 13);
		}
		for (n = 0; n < 40 && i != 2 && !columns; n += rows)
			add_item_rows(&m, id, n, rows, i == 5 && n ? TRANSPOSED : PLAIN,
				      i == 4 ? UNS_CODEC_ZSTD : UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_err err = { 0 };
		const char *how;

		assert_int_equal(uns_backing_equal(m.backing, &m.cat->tensors[cases[i].a], &m.cat->tensors[cases[i].b],
						   &equal, &how, &err),
				 0);
		assert_int_equal(equal, cases[i].equal);
		assert_string_equal(how, cases[i].how);
	}
	finish(&m);
}

/* What the CRCs of an earlier comparison decide needs no item's header. */
static void compares_by_crcs_found_earlier(void **state)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_backing *again;
	struct uns_engine_stats stats;
	struct uns_err err = { 0 };
	struct made m;
	uint64_t resolved;
	bool equal;
	size_t i;

	(void)state;
	start(&m);
	for (i = 0; i < 2; i++) {
		uint32_t id = add_tensor(&m, UNS_F32, shape2(40, 25));

		memcpy(m.dense[id], m.dense[0], 4000);
		add_item_rows(&m, id, 0, 20, PLAIN, UNS_CODEC_NONE);
		add_item_rows(&m, id, 20, 20, PLAIN, UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	assert_int_equal(uns_backing_equal(m.backing, &m.cat->tensors[0], &m.cat->tensors[1], &equal, NULL, &err), 0);
	assert_true(equal);
	uns_engine_stats(m.engine, &stats);
	resolved = stats.items_resolved;
	assert_int_equal(resolved, 4);
	uns_backing_crc_export(m.backing, &bytes);

	assert_int_equal(uns_backing_new(m.engine, m.cat, &again, &err), 0);
	uns_backing_crc_import(again, uns_span_of(bytes.p, bytes.len));
	equal = false;
	assert_int_equal(uns_backing_equal(again, &m.cat->tensors[0], &m.cat->tensors[1], &equal, NULL, &err), 0);
	assert_true(equal);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.items_resolved, resolved);
	uns_backing_free(again);
	finish(&m);
}

/* -- values -- */

/* A saved int: a torch.save file whose pickle is K\x2a. */
static void add_value(struct made *m, enum uns_codec codec, bool damaged, struct uns_named_value *v)
{
	struct uns_text item = UNS_TEXT_INIT, dir = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	char z[1000];

	item_record(&item, &dir, "archive/data.pkl", "\x80\x02K\x2a.", 5);
	item_end(&item, &dir, 1);
	if (damaged)
		item.p[item.len - 22] ^= 1;
	*v = (struct uns_named_value){ .name = "optimizer.step", .root = "", .codec = codec };
	v->length_bytes = item.len;
	if (codec == UNS_CODEC_ZSTD)
		v->length_bytes = ZSTD_compress(z, sizeof(z), item.p, item.len, 1);
	v->file = add_file(m, codec == UNS_CODEC_ZSTD ? z : item.p, (size_t)v->length_bytes);
	assert_int_equal(uns_catalog_add_value(m->cat, v, &err), 0);
	uns_text_fini(&item);
	uns_text_fini(&dir);
}

static void reads_values(void **state)
{
	struct uns_named_value v[4];
	const struct uns_value *found;
	struct uns_err err = { 0 };
	struct made m;
	int64_t n;
	size_t i;

	(void)state;
	start(&m);
	add_value(&m, UNS_CODEC_NONE, false, &v[0]);
	add_value(&m, UNS_CODEC_ZSTD, false, &v[1]);
	add_value(&m, UNS_CODEC_NONE, true, &v[2]);
	add_value(&m, UNS_CODEC_ZSTD, true, &v[3]);
	open_engine(&m, (struct uns_engine_options){ 0 });
	for (i = 0; i < 2; i++) {
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), 0);
		assert_true(uns_value_int(found, &n) && n == 42);
		v[i].value = found; /* known already: given back */
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), 0);
		assert_ptr_equal(found, v[i].value);
	}
	for (i = 2; i < 4; i++) {
		err = (struct uns_err){ 0 };
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "optimizer.step at byte 0: truncated"));
	}
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sum_needs_little_memory),
		cmocka_unit_test(reads_any_window),
		cmocka_unit_test(casts_any_window),
		cmocka_unit_test(reads_blocks),
		cmocka_unit_test(reads_joined),
		cmocka_unit_test(what_lies_together_is_a_slice),
		cmocka_unit_test(refuses_what_does_not_fit_together),
		cmocka_unit_test(a_joined_tensor_of_changed_files_is_stale),
		cmocka_unit_test(reads_sums),
		cmocka_unit_test(a_sum_of_changed_files_is_stale),
		cmocka_unit_test(refuses_what_is_no_sum),
		cmocka_unit_test(reads_byte_by_byte),
		cmocka_unit_test(refuses_other_casts),
		cmocka_unit_test(a_hole_is_an_error),
		cmocka_unit_test(an_alias_reads_the_other),
		cmocka_unit_test(whole_files_pass_through),
		cmocka_unit_test(reads_items),
		cmocka_unit_test(checks_items),
		cmocka_unit_test(refuses_damaged_zstd),
		cmocka_unit_test(decodes_once_with_little_memory),
		cmocka_unit_test(says_when_nothing_fits),
		cmocka_unit_test(resolves_in_parallel),
		cmocka_unit_test(a_replaced_file_still_reads_while_open),
		cmocka_unit_test(a_lost_link_does_not_matter),
		cmocka_unit_test(a_write_after_a_lost_link_matters),
		cmocka_unit_test(changed_files_are_stale),
		cmocka_unit_test(a_changed_file_is_not_served_from_the_cache),
		cmocka_unit_test(a_missing_file_is_named),
		cmocka_unit_test(waits_for_all_pieces_at_once),
		cmocka_unit_test(reads_any_window_of_slow_storage),
		cmocka_unit_test(slow_items_of_all_kinds),
		cmocka_unit_test(a_missing_one_of_many_is_named),
		cmocka_unit_test(many_threads_read),
		cmocka_unit_test(descriptors_are_bounded),
		cmocka_unit_test(compares_tensors),
		cmocka_unit_test(compares_by_crcs_found_earlier),
		cmocka_unit_test(reads_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
