/* A file of SOURCE is replaced by a longer one between each two looks at it, while a name of the mount is looked
 * up, opened and read: what is read is as long as was said, and all of one file, or it fails.
 *
 * statx is wrapped (--wrap, tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shell.h"
#include "unshard.h"

enum { OLD_BYTES = 1000, NEW_BYTES = 1500 };

static struct {
	long left; /* looks until it is replaced; 0 = it is not */
	bool done;
	const char *from, *to;
} replacing;

static bool renumbered; /* the file system of all files has another device number now */

int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
	int code = __real_statx(dir, path, flags, mask, out), error = errno;

	if (code == 0 && renumbered && S_ISREG(out->stx_mode))
		out->stx_dev_minor++;
	if (replacing.left && --replacing.left == 0) {
		assert_int_equal(rename(replacing.from, replacing.to), 0);
		replacing.done = true;
	}
	errno = error;
	return code;
}

static void write_bytes(const char *path, bool tensor, char fill, size_t n)
{
	char header[128] = "", bytes[NEW_BYTES];
	uint64_t header_bytes;
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	memset(bytes, fill, n);
	if (tensor) {
		snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
			 n, n);
		header_bytes = strlen(header);
		assert_int_equal(fwrite(&header_bytes, 1, 8, f), 8);
		assert_int_equal(fwrite(header, 1, header_bytes, f), header_bytes);
	}
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* Whole, and of one file. */
static void expect_whole(unshard_file *file, uint64_t size)
{
	char bytes[2 * NEW_BYTES];
	struct unshard_error err = { 0 };
	ssize_t n = unshard_pread(file, bytes, sizeof(bytes), 0, &err);
	size_t of_tensor;

	if (n == -ESTALE)
		return;
	if (n < 0 || (uint64_t)n != size)
		fail_msg("%zd bytes of %zu: %s", n, (size_t)size, err.text);
	of_tensor = bytes[n - 1] == 'o' ? OLD_BYTES : NEW_BYTES;
	assert_in_range(size, of_tensor, of_tensor + 128);
	assert_null(memchr(bytes + n - of_tensor, bytes[n - 1] == 'o' ? 'n' : 'o', of_tensor));
}

static void look_open_read(unshard *u, const char *const *names)
{
	struct unshard_stat was = { UNSHARD_STAT_INIT }, is = { UNSHARD_STAT_INIT };
	struct unshard_error err = { 0 };
	unshard_node *node, *below;
	unshard_file *file;
	int code;

	assert_int_equal(unshard_root(u, &node, NULL), 0);
	for (code = 0; *names && code == 0; names++) {
		code = unshard_lookup(node, *names, &below, &was, &err);
		if (code == 0) {
			unshard_node_unref(node);
			node = below;
		}
	}
	if (code == 0)
		code = unshard_node_open(node, NULL, &file, &is, &err);
	unshard_node_unref(node);
	if (code == -ESTALE)
		return;
	if (code < 0)
		fail_msg("%d: %s", code, err.text);
	assert_int_equal(is.size_bytes, was.size_bytes);
	expect_whole(file, was.size_bytes);
	unshard_file_close(file);
}

static void replaced_at_each_look(const char *file, bool tensor, const char *const *names)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	char dir[] = "/tmp/uns_replaced_XXXXXX", from[PATH_MAX], to[PATH_MAX];
	unshard *u;
	long nth;

	assert_non_null(mkdtemp(dir));
	shell(dir, "mkdir ckpt");
	snprintf(from, sizeof(from), "%s/new", dir);
	snprintf(to, sizeof(to), "%s/%s", dir, file);
	replacing.from = from;
	replacing.to = to;
	for (nth = 1, replacing.done = true; replacing.done; nth++) {
		write_bytes(from, tensor, 'n', NEW_BYTES);
		write_bytes(to, tensor, 'o', OLD_BYTES);
		replacing.done = false;
		assert_int_equal(unshard_open(dir, &options, &u, NULL), 0);
		replacing.left = nth;
		look_open_read(u, names);
		replacing.left = 0;
		unshard_close(u);
	}
	assert_true(nth > 5);
	shell(dir, "rm -r ../$(basename $PWD)");
}

static void a_file_of_the_source(void **state)
{
	(void)state;
	replaced_at_each_look("notes.txt", false, (const char *[]){ "weights", "notes.txt", NULL });
}

static void a_file_of_a_checkpoint(void **state)
{
	(void)state;
	replaced_at_each_look("ckpt/model.safetensors", true,
			      (const char *[]){ "weights", "ckpt", "model.safetensors", NULL });
}

/* -- ESTALE does not last -- */

static int read_once(unshard *u, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	char byte;
	ssize_t n;
	int code = unshard_file_open(u, path, NULL, &file, &st, NULL);

	if (code < 0)
		return code;
	n = unshard_pread(file, &byte, 1, st.size_bytes - 1, NULL);
	unshard_file_close(file);
	return n < 0 ? (int)n : 0;
}

/* As after a remount: no file has changed by its generation, and none has the identity that it had. */
static void a_device_with_another_number(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	const char *path = "weights/checkpoint-2/model.safetensors";
	unshard *u;

	(void)state;
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &options, &u, NULL), 0);
	assert_int_equal(read_once(u, path), 0);
	renumbered = true;
	assert_int_equal(read_once(u, path), -ESTALE);
	assert_int_equal(read_once(u, path), 0);
	renumbered = false;
	unshard_close(u);
}

/* -- a file that is written again between its lookup and its open -- */

static unshard_node *look_up(unshard *u, const char *const *names)
{
	unshard_node *node, *below;

	assert_int_equal(unshard_root(u, &node, NULL), 0);
	for (; *names; names++) {
		assert_int_equal(unshard_lookup(node, *names, &below, NULL, NULL), 0);
		unshard_node_unref(node);
		node = below;
	}
	return node;
}

/* The open fails, not the read: the kernel then looks the file up again, and its reader never sees ESTALE. */
static void a_copied_file_that_is_written_again(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	const char *const names[] = { "full", "run", "checkpoint-2", "tokenizer_config.json", NULL };
	char dir[] = "/tmp/uns_replaced_XXXXXX";
	unshard_node *node;
	unshard_file *file;
	unshard *u;
	int i;

	(void)state;
	assert_non_null(mkdtemp(dir));
	shell(dir, "cp -r " UNSHARD_GOLDEN
		   "/run . && rm -rf run/checkpoint-4 && test ! -e run/checkpoint-2/tokenizer_config.json");
	assert_int_equal(unshard_open(dir, &options, &u, NULL), 0);
	for (i = 0; i < 5; i++) {
		node = look_up(u, names);
		shell(dir, "echo ' ' >>run/tokenizer_config.json");
		assert_int_equal(unshard_node_open(node, NULL, &file, NULL, NULL), -ESTALE);
		unshard_node_unref(node);
		assert_int_equal(read_once(u, "full/run/checkpoint-2/tokenizer_config.json"), 0);
		shell(dir, "echo ' ' >>run/tokenizer_config.json");
		assert_int_equal(read_once(u, "full/run/checkpoint-2/tokenizer_config.json"), 0);
	}
	unshard_close(u);
	shell(dir, "rm -r ../$(basename $PWD)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_of_the_source),
		cmocka_unit_test(a_file_of_a_checkpoint),
		cmocka_unit_test(a_device_with_another_number),
		cmocka_unit_test(a_copied_file_that_is_written_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
