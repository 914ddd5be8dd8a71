/* A checkpoint that a test of the engine makes, and the oracle of what is read from it, which the test builds itself.
 */
#ifndef UNS_TESTS_READ_MADE_H
#define UNS_TESTS_READ_MADE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/text.h"
#include "engine/cast.h"
#include "engine/engine.h"
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

static inline uint64_t next_random(struct made *m)
{
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return m->random >> 24;
}

static inline uint64_t below(struct made *m, uint64_t n)
{
	return next_random(m) % n;
}

static inline void start(struct made *m)
{
	struct uns_err err = { 0 };

	*m = (struct made){ .random = 20240607 };
	strcpy(m->dir, "/tmp/unshard-read-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	assert_int_equal(uns_root_open(m->dir, NULL, &m->root, &err), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &m->cat, &err), 0);
}

static inline void open_engine(struct made *m, struct uns_engine_options options)
{
	struct uns_err err = { 0 };

	if (!options.n_threads)
		options.n_threads = 4;
	options.cache_dir = m->dir;
	assert_int_equal(uns_catalog_seal(m->cat, &err), 0);
	assert_int_equal(uns_engine_new(&options, &m->engine, &err), 0);
	assert_int_equal(uns_backing_new(m->engine, m->cat, &m->backing, &err), 0);
}

static inline int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void finish(struct made *m)
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

static inline void put(const struct made *m, const char *name, const void *bytes, size_t len)
{
	int fd = open(full_path(m, name), O_CREAT | O_WRONLY | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	close(fd);
}

/* A file of its own in the catalog. */
static inline uint32_t add_file(struct made *m, const void *bytes, size_t len)
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
static inline uint32_t add_tensor(struct made *m, enum uns_dtype dtype, struct uns_shape shape)
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
static inline uint8_t *cut_box(const struct made *m, uint32_t id, const struct uns_box *box, size_t *len)
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
static inline void add_raw_box(struct made *m, uint32_t id, struct uns_box box)
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

static inline void add_raw_range(struct made *m, uint32_t id, uint64_t first, uint64_t count)
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
static inline void add_grid(struct made *m, uint32_t id, uint64_t rows, uint64_t cols)
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
static inline void add_item_rows(struct made *m, uint32_t id, uint64_t lo, uint64_t len, enum kind kind,
				 enum uns_codec codec)
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
static inline void add_item_columns(struct made *m, uint32_t id, uint64_t lo, uint64_t len)
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

static inline struct uns_shape shape2(uint64_t a, uint64_t b)
{
	return (struct uns_shape){ 2, { a, b } };
}

/* -- the oracle -- */

struct file {
	struct uns_layout layout;
	uint8_t *want;
};

/* A header, every tensor given out as out[i], zeros and literals between, and a part of the first. */
static inline struct file make_file(struct made *m, const enum uns_dtype *out)
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

static inline void check_window(struct made *m, const struct file *f, uint64_t off, size_t len)
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

/* Of how many windows one is read. They all pass through the same code, which sanitizers make slow, and ThreadSanitizer
 * finds nothing in what one thread reads. UNSHARD_LONG: each one. */
#if defined(__SANITIZE_THREAD__)
enum { ONE_OF = 10, READERS = 4 }; /* it needs two threads to find what they do at once */
#elif defined(__SANITIZE_ADDRESS__)
enum { ONE_OF = 3, READERS = 8 };
#else
enum { ONE_OF = 1, READERS = 8 };
#endif

static inline unsigned windows(unsigned n)
{
	return getenv("UNSHARD_LONG") ? n : n / ONE_OF;
}

static inline void check_windows(struct made *m, const struct file *f, unsigned n)
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
static inline void check_fails(struct made *m, const struct uns_layout *layout, int code, const char *a, const char *b)
{
	uint8_t *buf = malloc((size_t)layout->size_bytes);
	struct uns_err err = { 0 };

	assert_int_equal(uns_read(m->backing, layout, buf, (size_t)layout->size_bytes, 0, &err), code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, a) || !strstr(err.text, b))
		fail_msg("\"%s\" and \"%s\" expected in: %s", a, b, err.text);
	free(buf);
}

static inline void add_raw_tensors(struct made *m)
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

/* -- many at once -- */

struct reader {
	struct made m; /* a copy with its own random numbers; the rest is shared */
	const struct file *f;
};

static inline void *read_windows(void *arg)
{
	struct reader *r = arg;

	check_windows(&r->m, r->f, 150);
	return NULL;
}

static inline void read_by_threads(struct made *m, const struct file *f)
{
	struct reader r[READERS];
	pthread_t thread[READERS];
	size_t i;

	for (i = 0; i < READERS; i++) {
		r[i] = (struct reader){ *m, f };
		r[i].m.random += i;
		assert_int_equal(pthread_create(&thread[i], NULL, read_windows, &r[i]), 0);
	}
	for (i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
}

#endif
