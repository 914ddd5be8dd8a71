/* io/source.c and io/follow.c against a small tree with links of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "io/follow.h"
#include "io/source.h"

struct tree {
	char top[64]; /* holds root/, out/ and blobs/ */
	struct uns_root *plain, *trusted, *following;
};

static void put(const struct tree *t, const char *rel, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", t->top, rel);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void dir(const struct tree *t, const char *rel)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->top, rel);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* "@" at the start of target stands for the top directory. */
static void ln(const struct tree *t, const char *rel, const char *target)
{
	char path[256], full[256];

	snprintf(path, sizeof(path), "%s/%s", t->top, rel);
	snprintf(full, sizeof(full), "%s%s", target[0] == '@' ? t->top : "", target[0] == '@' ? target + 1 : target);
	assert_int_equal(symlink(full, path), 0);
}

static void make_socket(const struct tree *t, const char *rel)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", t->top, rel);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	close(fd);
}

static void fill(struct tree *t)
{
	char path[256];

	dir(t, "root");
	dir(t, "root/sub");
	dir(t, "root2");
	dir(t, "out");
	dir(t, "blobs");
	dir(t, "blobs/deep");
	put(t, "root/a.txt", "inside");
	put(t, "root/sub/b.txt", "below");
	put(t, "root/empty", "");
	put(t, "root/x10", "");
	put(t, "root/x9", "");
	put(t, "root2/a.txt", "beside");
	put(t, "out/secret", "outside");
	put(t, "blobs/deep/blob", "blob");
	ln(t, "root/in", "sub/b.txt");
	ln(t, "root/in_up", "sub/../a.txt");
	ln(t, "root/in_abs", "@/root/a.txt");
	ln(t, "root/in_dir", "@/root/sub");
	ln(t, "root/back", "../root/a.txt");
	ln(t, "root/leak", "../out/secret");
	ln(t, "root/leak_abs", "@/out/secret");
	ln(t, "root/leak_dir", "../out");
	ln(t, "root/beside", "@/root2/a.txt");
	ln(t, "root/to_blob", "../blobs/deep/blob");
	ln(t, "root/to_blobs", "@/blobs");
	ln(t, "root/dangling", "nowhere");
	ln(t, "root/loop", "loop");
	ln(t, "root/magic", "/proc/self/root/etc/passwd");
	ln(t, "blobs/onward", "../out/secret");
	ln(t, "blobs/home", "../root/a.txt");
	snprintf(path, sizeof(path), "%s/root/fifo", t->top);
	assert_int_equal(mkfifo(path, 0644), 0);
	make_socket(t, "root/socket");
}

static int setup(void **state)
{
	struct tree *t = calloc(1, sizeof(*t));
	char root[128], blobs[128];
	const char *follow[] = { blobs };
	struct uns_root_options trusted = { .trusted = true };
	struct uns_root_options following = { .follow = follow, .n_follow = 1 };
	struct uns_err err = { 0 };

	assert_non_null(t);
	strcpy(t->top, "/tmp/unshard-source-XXXXXX");
	assert_non_null(mkdtemp(t->top));
	fill(t);
	snprintf(root, sizeof(root), "%s/root", t->top);
	snprintf(blobs, sizeof(blobs), "%s/blobs", t->top);
	assert_int_equal(uns_root_open(root, NULL, &t->plain, &err), 0);
	assert_int_equal(uns_root_open(root, &trusted, &t->trusted, &err), 0);
	assert_int_equal(uns_root_open(root, &following, &t->following, &err), 0);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct tree *t = *state;
	char cmd[128];

	uns_root_close(t->plain);
	uns_root_close(t->trusted);
	uns_root_close(t->following);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", t->top);
	assert_int_equal(system(cmd), 0);
	free(t);
	return 0;
}

static const struct open_case {
	const char *rel;
	int plain, trusted, following; /* expected code, by root */
	const char *content;           /* where the code is 0 */
	const char *words;             /* of the sentence, where it is not */
} open_cases[] = {
	{ "a.txt", 0, 0, 0, "inside", "" },
	{ "sub/b.txt", 0, 0, 0, "below", "" },
	{ "empty", 0, 0, 0, "", "" },
	{ "in", 0, 0, 0, "below", "" },
	{ "in_up", 0, 0, 0, "inside", "" },
	{ "in_abs", 0, 0, 0, "inside", "" },
	{ "in_dir/b.txt", 0, 0, 0, "below", "" },
	{ "back", 0, 0, 0, "inside", "" },
	{ "leak", -EXDEV, 0, -EXDEV, "outside", "-o follow=" },
	{ "leak_abs", -EXDEV, 0, -EXDEV, "outside", "/out/secret" },
	{ "leak_dir/secret", -EXDEV, 0, -EXDEV, "outside", "-o follow=" },
	{ "beside", -EXDEV, 0, -EXDEV, "beside", "/root2/a.txt, which is outside SOURCE" },
	{ "to_blob", -EXDEV, 0, 0, "blob", "/blobs/deep/blob" },
	{ "to_blobs/deep/blob", -EXDEV, 0, 0, "blob", "/blobs/deep/blob" },
	{ "to_blobs/onward", -EXDEV, 0, -EXDEV, "outside", "-o follow=" },
	{ "to_blobs/home", -EXDEV, 0, 0, "inside", "-o follow=" },
	{ "dangling", -ENOENT, -ENOENT, -ENOENT, "", "No such file" },
	{ "loop", -ELOOP, -ELOOP, -ELOOP, "", "/root/loop" },
	{ "absent", -ENOENT, -ENOENT, -ENOENT, "", "/root/absent: No such file" },
	{ "a.txt/below", -ENOENT, -ENOENT, -ENOENT, "", "No such file" },
	{ "fifo", -ENOTSUP, -ENOTSUP, -ENOTSUP, "", "/root/fifo: not a regular file" },
	{ "socket", -ENOTSUP, -ENOTSUP, -ENOTSUP, "", "not a regular file" },
	{ "sub", -ENOTSUP, -ENOTSUP, -ENOTSUP, "", "not a regular file" },
	{ "../out/secret", -EXDEV, -EXDEV, -EXDEV, "", "is not a path below it" },
	{ "/etc/passwd", -EXDEV, -EXDEV, -EXDEV, "", "is not a path below it" },
};

static void check_open(const struct uns_root *root, const struct open_case *c, int want)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct uns_span got;
	int rc = uns_root_read_file(root, c->rel, 100, &arena, &got, NULL, &err);

	if (rc != want)
		fail_msg("%s: %d (%s) instead of %d", c->rel, rc, err.text, want);
	assert_int_equal(err.code, want);
	if (rc == 0) {
		assert_int_equal(uns_span_left(&got), strlen(c->content));
		assert_string_equal((const char *)got.p, c->content);
	} else if (!strstr(err.text, c->words)) {
		fail_msg("%s: \"%s\" lacks \"%s\"", c->rel, err.text, c->words);
	}
	uns_arena_fini(&arena);
}

static void test_open(void **state)
{
	const struct tree *t = *state;
	size_t i;

	for (i = 0; i < sizeof(open_cases) / sizeof(open_cases[0]); i++) {
		check_open(t->plain, &open_cases[i], open_cases[i].plain);
		check_open(t->trusted, &open_cases[i], open_cases[i].trusted);
		check_open(t->following, &open_cases[i], open_cases[i].following);
	}
}

static void test_no_magic_links(void **state)
{
	const struct tree *t = *state;
	struct uns_err err = { 0 };
	struct uns_stat st;
	int fd;

	assert_true(uns_root_open_file(t->plain, "magic", &fd, &st, &err) < 0);
	err.code = 0;
	assert_true(uns_root_open_file(t->following, "magic", &fd, &st, &err) < 0);
}

/* What a kernel without openat2 gets: the walk alone, with the same answers. */
static void test_walk_alone(void **state)
{
	const struct tree *t = *state;
	char root[128], blobs[128], text[16];
	struct uns_base base[2];
	size_t i;

	snprintf(root, sizeof(root), "%s/root", t->top);
	snprintf(blobs, sizeof(blobs), "%s/blobs", t->top);
	base[0] = (struct uns_base){ open(root, O_PATH | O_DIRECTORY), root, root };
	base[1] = (struct uns_base){ open(blobs, O_PATH | O_DIRECTORY), blobs, blobs };
	for (i = 0; i < sizeof(open_cases) / sizeof(open_cases[0]); i++) {
		const struct open_case *c = &open_cases[i];
		int fd, n, want = c->following;
		struct uns_err err = { 0 };

		if (strstr(c->words, "is not a path below it") || want == -ENOTSUP)
			continue; /* decided by source.c */
		fd = uns_follow_open(base, 2, c->rel, O_RDONLY | O_NONBLOCK, &err);
		if (want == -ENOENT && fd == -ENOTDIR)
			continue;
		if (want < 0) {
			assert_int_equal(fd, want);
			continue;
		}
		if (fd < 0)
			fail_msg("%s: %d %s", c->rel, fd, err.text);
		n = (int)read(fd, text, sizeof(text));
		assert_int_equal(n, strlen(c->content));
		assert_memory_equal(text, c->content, (size_t)n);
		close(fd);
	}
	close(base[0].fd);
	close(base[1].fd);
}

static const struct {
	const char *rel;
	bool follow;
	int rc;
	enum uns_kind kind;
	uint64_t size;
} stat_cases[] = {
	{ "", false, 0, UNS_KIND_DIR, UINT64_MAX },
	{ "a.txt", false, 0, UNS_KIND_FILE, 6 },
	{ "in", false, 0, UNS_KIND_LINK, 9 },
	{ "in", true, 0, UNS_KIND_FILE, 5 },
	{ "in_dir", true, 0, UNS_KIND_DIR, UINT64_MAX },
	{ "leak", true, 0, UNS_KIND_LINK, 13 },
	{ "fifo", true, 0, UNS_KIND_OTHER, UINT64_MAX },
	{ "dangling", true, -ENOENT, 0, 0 },
	{ "dangling", false, 0, UNS_KIND_LINK, 7 },
	{ "leak_dir/secret", true, -EXDEV, 0, 0 },
};

static void test_stat(void **state)
{
	const struct tree *t = *state;
	size_t i;

	for (i = 0; i < sizeof(stat_cases) / sizeof(stat_cases[0]); i++) {
		struct uns_err err = { 0 };
		struct uns_stat st;
		int rc = uns_root_stat(t->plain, stat_cases[i].rel, stat_cases[i].follow, &st, &err);

		if (rc != stat_cases[i].rc)
			fail_msg("%s: %d %s", stat_cases[i].rel, rc, err.text);
		assert_int_equal(err.code, rc);
		if (rc < 0)
			continue;
		assert_int_equal(st.kind, stat_cases[i].kind);
		if (stat_cases[i].size != UINT64_MAX)
			assert_int_equal(st.id.size, stat_cases[i].size);
	}
}

static void test_list_in_natural_order(void **state)
{
	const struct tree *t = *state;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct uns_listing list;
	size_t n;

	assert_int_equal(uns_root_list(t->plain, "", &arena, &list, &err), 0);
	n = list.n;
	assert_int_equal(n, 21);
	assert_string_equal(list.v[n - 2].name, "x9");
	assert_string_equal(list.v[n - 1].name, "x10");
	assert_int_equal(uns_listing_find(&list, "leak")->kind, UNS_KIND_LINK);
	assert_int_equal(uns_listing_find(&list, "sub")->kind, UNS_KIND_DIR);
	assert_int_equal(uns_listing_find(&list, "fifo")->kind, UNS_KIND_OTHER);
	assert_null(uns_listing_find(&list, ".."));
	assert_int_equal(uns_root_list(t->plain, "leak_dir", &arena, &list, &err), -EXDEV);
	uns_arena_fini(&arena);
}

static void test_readlink(void **state)
{
	const struct tree *t = *state;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	const char *target;

	assert_int_equal(uns_root_readlink(t->plain, "leak", &arena, &target, &err), 0);
	assert_string_equal(target, "../out/secret");
	assert_int_equal(uns_root_readlink(t->plain, "a.txt", &arena, &target, &err), -EINVAL);
	uns_arena_fini(&arena);
}

static void test_too_large(void **state)
{
	const struct tree *t = *state;
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct uns_span got;

	assert_int_equal(uns_root_read_file(t->plain, "a.txt", 5, &arena, &got, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "6 bytes; expected at most 5"));
	uns_arena_fini(&arena);
}

static void test_cut_file_is_stale(void **state)
{
	const struct tree *t = *state;
	struct uns_err err = { 0 };
	struct uns_stat st;
	struct uns_identity now;
	char buf[8];
	int fd, writer;
	char path[128];

	put(t, "root/cut", "12345678");
	assert_int_equal(uns_root_open_file(t->plain, "cut", &fd, &st, &err), 0);
	assert_int_equal(uns_fd_identity(fd, false, &now, NULL, &err), 0);
	assert_true(uns_identity_equal(&st.id, &now));
	snprintf(path, sizeof(path), "%s/root/cut", t->top);
	writer = open(path, O_WRONLY);
	assert_int_equal(ftruncate(writer, 3), 0);
	close(writer);
	assert_int_equal(uns_fd_identity(fd, false, &now, NULL, &err), 0);
	assert_false(uns_identity_equal(&st.id, &now));
	assert_int_equal(uns_fd_pread(fd, buf, 8, 0, "cut", &err), -ESTALE);
	assert_non_null(strstr(err.text, "cut: the file ends at byte 3"));
	close(fd);
	assert_int_equal(unlink(path), 0);
}

static void test_no_such_root(void **state)
{
	struct uns_err err = { 0 };
	struct uns_root *root = NULL;

	(void)state;
	assert_int_equal(uns_root_open("/nonexistent/dir", NULL, &root, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/dir: No such file"));
	assert_null(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_no_magic_links),
		cmocka_unit_test(test_walk_alone),
		cmocka_unit_test(test_stat),
		cmocka_unit_test(test_list_in_natural_order),
		cmocka_unit_test(test_readlink),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_cut_file_is_stale),
		cmocka_unit_test(test_no_such_root),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
