/* Compressed items of a DCP directory: what their frames ask for is no reason to refuse them, or to take
 * memory that their content does not need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "dcp/item.h"

#define MIB ((size_t)1 << 20)

/* A frame of n_bytes with that window, whose header says nothing of its content's size. */
static size_t add_frame(int fd, size_t n_bytes, int window_log)
{
	ZSTD_CCtx *z = ZSTD_createCCtx();
	size_t room = ZSTD_compressBound(n_bytes) + 100, len;
	char *frame = malloc(room), *bytes = calloc(1, n_bytes);
	ZSTD_inBuffer in = { bytes, n_bytes, 0 };
	ZSTD_outBuffer to = { frame, room, 0 };

	assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, window_log)));
	assert_false(ZSTD_isError(ZSTD_compressStream2(z, &to, &in, ZSTD_e_flush)));
	assert_int_equal(ZSTD_compressStream2(z, &to, &in, ZSTD_e_end), 0);
	len = to.pos;
	assert_int_equal(write(fd, frame, len), len);
	ZSTD_freeCCtx(z);
	free(bytes);
	free(frame);
	return len;
}

static const struct {
	const char *name;
	size_t n_bytes[2]; /* of one frame, or of two */
	int window_log;
	size_t cut; /* bytes missing at the end */
	int code;
	const char *said;
} cases[] = {
	{ "small", { 100 }, 10, 0, 0, NULL },
	{ "a window of 256 MiB", { 100 }, 28, 0, 0, NULL },
	{ "a window of 1 GiB", { 100000 }, 30, 0, 0, NULL },
	{ "two frames", { 5000, 70000 }, 20, 0, 0, NULL },
	{ "cut", { 5000 }, 20, 3, -EBADMSG, "damaged zstd frame" },
	{ "as long as may be", { 64 * MIB }, 20, 0, 0, NULL },
	{ "too long",
	  { 64 * MIB + 1 },
	  20,
	  0,
	  -ENOTSUP,
	  "it decompresses to more than the "
	  "67108864 bytes that unshard reads" },
};

static void decompresses_items(void **state)
{
	char dir[] = "/tmp/unshard_dcp_item_XXXXXX", path[64];
	struct uns_err err;
	struct uns_root *root;
	size_t i, len;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/__0_0.distcp", dir);
	assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_dcp_item_location at = { .codec = UNS_CODEC_ZSTD };
		struct uns_dcp_reader reader;
		struct uns_catalog *cat;
		struct uns_span out;

		print_message("%s\n", cases[i].name);
		fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
		len = add_frame(fd, cases[i].n_bytes[0], cases[i].window_log);
		if (cases[i].n_bytes[1])
			len += add_frame(fd, cases[i].n_bytes[1], cases[i].window_log);
		at.length_bytes = len - cases[i].cut;
		close(fd);
		assert_int_equal(uns_catalog_new("ckpt", &cat, NULL), 0);
		assert_int_equal(uns_catalog_add_file(cat, root, "__0_0.distcp", &at.file, NULL), 0);
		uns_dcp_reader_init(&reader, cat);
		err = (struct uns_err){ 0 };
		assert_int_equal(uns_dcp_item_bytes(&reader, &at, &arena, &out, &err), cases[i].code);
		if (cases[i].said)
			assert_non_null(strstr(err.text, cases[i].said));
		else
			assert_int_equal(uns_span_left(&out), cases[i].n_bytes[0] + cases[i].n_bytes[1]);
		uns_dcp_reader_fini(&reader);
		uns_catalog_free(cat);
	}
	uns_root_close(root);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(decompresses_items) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
