/* How much memory decoding zstd takes: what frames say of it, and the budget that all decoders share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/text.h"
#include "engine/engine.h"
#include "engine/windows.h"
#include "wire/zstd_frame.h"

#define MIB (UINT64_C(1) << 20)

/* One frame of len bytes. Its header says how many they are only where `sized` is set. */
static void add_frame(struct uns_text *out, const void *bytes, size_t len, int window_log, bool sized)
{
	ZSTD_CCtx *z = ZSTD_createCCtx();
	size_t room = ZSTD_compressBound(len) + 100;
	char *frame = malloc(room);
	ZSTD_inBuffer in = { bytes, len, 0 };
	ZSTD_outBuffer to = { frame, room, 0 };

	assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, window_log)));
	if (sized)
		ZSTD_CCtx_setPledgedSrcSize(z, len);
	else /* a first call that does not end the frame keeps the size unknown */
		assert_false(ZSTD_isError(ZSTD_compressStream2(z, &to, &in, ZSTD_e_flush)));
	assert_int_equal(ZSTD_compressStream2(z, &to, &in, ZSTD_e_end), 0);
	uns_text_add(out, frame, to.pos);
	free(frame);
	ZSTD_freeCCtx(z);
}

static void a_header_says_what_its_frame_takes(void **state)
{
	static const struct {
		int window_log;
		bool sized;
		size_t len;
		uint64_t window;
	} cases[] = {
		{ 10, false, 5000, 1024 },    { 20, false, 10, MIB },
		{ 27, false, 10, 128 * MIB }, { 27, true, 200, 200 }, /* one segment: its own size */
		{ 27, true, 0, 0 },           { 27, true, 300, 300 },
		{ 27, true, 70000, 70000 },   { 10, true, 70000, 1024 },
	};
	char *bytes = calloc(1, 70000);
	size_t i, cut;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_text t = UNS_TEXT_INIT;
		uint64_t window = 1;

		add_frame(&t, bytes, cases[i].len, cases[i].window_log, cases[i].sized);
		assert_true(uns_zstd_window(uns_span_of(t.p, t.len), &window));
		assert_int_equal(window, cases[i].window);
		for (cut = 0; cut < 6; cut++) /* never more than is there; ASan watches */
			uns_zstd_window(uns_span_of(t.p, cut), &window);
		assert_false(uns_zstd_window(uns_span_of(t.p, 5), &window));
		t.p[1] ^= 1;
		assert_false(uns_zstd_window(uns_span_of(t.p, t.len), &window));
		uns_text_fini(&t);
	}
	assert_true(uns_zstd_window(uns_span_of("\x5a\x2a\x4d\x18\2\0\0\0ab", 10), &(uint64_t){ 0 }));
	free(bytes);
}

/* -- a tensor of bytes in one raw compressed piece -- */

struct made {
	char dir[64], path[80];
	struct uns_root *root;
	struct uns_catalog *cat;
	struct uns_engine *engine;
	struct uns_backing *backing;
	struct uns_arena arena;
	struct uns_layout layout;
};

static void start(struct made *m, const struct uns_text *frames, size_t len, uint64_t window_bytes)
{
	const struct uns_engine_options options = { .n_threads = 2,
						    .cache_bytes = 64 * MIB,
						    .window_bytes = window_bytes };
	struct uns_tensor t = { .name = "w",
				.key = "model.w",
				.root = "",
				.dtype = UNS_U8,
				.shape = { 1, { len } },
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE };
	struct uns_piece p = { .box = &(struct uns_box){ .n = 1, .len = { len } },
			       .rank = -1,
			       .codec = UNS_CODEC_ZSTD,
			       .length_bytes = frames->len };
	struct uns_layout_builder b = { .arena = &m->arena };
	uint32_t id;
	FILE *f;

	*m = (struct made){ 0 };
	strcpy(m->dir, "/tmp/unshard-zstd-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	snprintf(m->path, sizeof(m->path), "%s/shard", m->dir);
	f = fopen(m->path, "w");
	assert_int_equal(fwrite(frames->p, 1, frames->len, f), frames->len);
	fclose(f);
	assert_int_equal(uns_root_open(m->dir, NULL, &m->root, NULL), 0);
	assert_int_equal(uns_catalog_new("ckpt", &m->cat, NULL), 0);
	assert_int_equal(uns_catalog_add_file(m->cat, m->root, "shard", &p.file, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(m->cat, &t, &id, NULL), 0);
	assert_int_equal(uns_catalog_add_piece(m->cat, &p, NULL), 0);
	assert_int_equal(uns_catalog_seal(m->cat, NULL), 0);
	assert_int_equal(uns_engine_new(&options, &m->engine, NULL), 0);
	assert_int_equal(uns_backing_new(m->engine, m->cat, &m->backing, NULL), 0);
	uns_layout_tensor(&b, m->cat->tensors, 0, len, UNS_U8);
	assert_int_equal(uns_layout_build(&b, m->cat, &m->layout, NULL), 0);
}

static void finish(struct made *m)
{
	uns_backing_free(m->backing);
	uns_engine_free(m->engine);
	uns_catalog_free(m->cat);
	uns_root_close(m->root);
	uns_arena_fini(&m->arena);
	unlink(m->path);
	rmdir(m->dir);
}

static int read_all(struct made *m, const uint8_t *want, size_t len, struct uns_err *err)
{
	uint8_t *buf = malloc(len);
	ssize_t got = uns_read(m->backing, &m->layout, buf, len, 0, err);

	if (got >= 0) {
		assert_int_equal(got, len);
		assert_memory_equal(buf, want, len);
	}
	free(buf);
	return got < 0 ? (int)got : 0;
}

/* 40 bytes in the file, 128 MiB to decode them: refused, with the file, the tensor and what to do. */
static void a_window_beyond_the_budget_is_refused(void **state)
{
	static const struct {
		uint64_t budget;
		bool sized;
		int code;
	} cases[] = {
		{ 32 * MIB, false, -ENOTSUP },
		{ 128 * MIB - 1, false, -ENOTSUP },
		{ 128 * MIB, false, 0 },
		{ 1 * MIB, true, 0 }, /* says that it needs less */
	};
	uint8_t bytes[1000];
	size_t i;

	(void)state;
	memset(bytes, 7, sizeof(bytes));
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_text frames = UNS_TEXT_INIT;
		struct uns_err err = { 0 };
		struct made m;

		add_frame(&frames, bytes, sizeof(bytes), 27, cases[i].sized);
		start(&m, &frames, sizeof(bytes), cases[i].budget);
		assert_int_equal(read_all(&m, bytes, sizeof(bytes), &err), cases[i].code);
		if (cases[i].code) {
			assert_non_null(strstr(err.text, "/shard: model.w: "));
			assert_non_null(strstr(err.text, "a window of 134217728 bytes"));
			assert_non_null(strstr(err.text, "-o mem=256MiB"));
		}
		finish(&m);
		uns_text_fini(&frames);
	}
}

/* Several frames in one piece, of windows that grow, a header of which lies across two reads of the file. */
static void each_frame_is_asked(void **state)
{
	enum { FIRST = (1 << 20) - 40, LEN = FIRST + 3000 };
	uint8_t *bytes = malloc(LEN);
	struct uns_text frames = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	size_t i, split;
	struct made m;

	(void)state;
	for (i = 0; i < LEN; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	for (split = 0; split < 8; split++) {
		frames.len = 0;
		add_frame(&frames, bytes, FIRST, 17, false);
		assert_true(frames.len < (1 << 20) - 8);
		/* A skippable frame moves the next header to the end of the first buffer. */
		uint32_t fill = (uint32_t)((1 << 20) - 8 - split - frames.len);
		uint8_t skip[8] = {
			0x50, 0x2a, 0x4d, 0x18, (uint8_t)fill, (uint8_t)(fill >> 8), (uint8_t)(fill >> 16)
		};

		uns_text_add(&frames, skip, 8);
		while (fill--)
			uns_text_add(&frames, "", 1);
		add_frame(&frames, bytes + FIRST, 1000, 22, false);
		add_frame(&frames, bytes + FIRST + 1000, 2000, 24, false);
		start(&m, &frames, LEN, 16 * MIB);
		assert_int_equal(read_all(&m, bytes, LEN, &err), 0);
		finish(&m);
		start(&m, &frames, LEN, 8 * MIB);
		err = (struct uns_err){ 0 };
		assert_int_equal(read_all(&m, bytes, LEN, &err), -ENOTSUP);
		finish(&m);
	}
	uns_text_fini(&frames);
	free(bytes);
}

/* -- the budget -- */

struct crowd {
	struct uns_windows w;
	_Atomic uint64_t held, most;
	unsigned seed;
};

static void *take_often(void *arg)
{
	struct crowd *c = arg;
	unsigned seed = __atomic_add_fetch(&c->seed, 1, __ATOMIC_RELAXED), i;
	uint64_t bytes, held;

	for (i = 0; i < 2000; i++) {
		bytes = (seed = seed * 1103515245 + 12345) >> 16 & 63;
		if (!uns_windows_take(&c->w, bytes))
			return arg;
		held = atomic_fetch_add(&c->held, bytes) + bytes;
		if (held > c->most)
			c->most = held;
		atomic_fetch_sub(&c->held, bytes);
		uns_windows_give_back(&c->w, bytes);
	}
	return NULL;
}

static void all_decoders_together_keep_to_it(void **state)
{
	struct crowd c = { .seed = 0 };
	pthread_t thread[6];
	void *failed;
	size_t i;

	(void)state;
	uns_windows_init(&c.w, 100);
	assert_false(uns_windows_take(&c.w, 101));
	for (i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, take_often, &c), 0);
	for (i = 0; i < 6; i++) {
		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
	assert_true(c.most <= 100);
	assert_int_equal(c.w.held_bytes, 0);
	uns_windows_fini(&c.w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_says_what_its_frame_takes),
		cmocka_unit_test(a_window_beyond_the_budget_is_refused),
		cmocka_unit_test(each_frame_is_asked),
		cmocka_unit_test(all_decoders_together_keep_to_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
