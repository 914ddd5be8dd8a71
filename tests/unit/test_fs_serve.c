/* fs/serve.c: what the end of a mount was, with a libfuse of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/fuse.h>
#include <cmocka.h>

#include "../../fs/serve.c"

/* What reading a request returns, one after the other, once the first is answered; the last is of a session that has
 * ended. */
static const int *received;
static atomic_bool exited; /* asked by the thread that waits, set by one that reads */

struct fuse_session *__wrap_fuse_session_new(struct fuse_args *args, const struct fuse_lowlevel_ops *op, size_t op_size,
					     void *userdata);
struct fuse_session *__wrap_fuse_session_new_versioned(struct fuse_args *args, const struct fuse_lowlevel_ops *op,
						       size_t op_size, const void *version, void *userdata);

struct fuse_session *__wrap_fuse_session_new(struct fuse_args *args, const struct fuse_lowlevel_ops *op, size_t op_size,
					     void *userdata)
{
	(void)args, (void)op, (void)op_size;
	return userdata;
}

/* What libfuse's headers call from 3.17 on. */
struct fuse_session *__wrap_fuse_session_new_versioned(struct fuse_args *args, const struct fuse_lowlevel_ops *op,
						       size_t op_size, const void *version, void *userdata)
{
	(void)version;
	return __wrap_fuse_session_new(args, op, op_size, userdata);
}

int fuse_set_signal_handlers(struct fuse_session *se)
{
	(void)se;
	return 0;
}

void fuse_remove_signal_handlers(struct fuse_session *se)
{
	(void)se;
}

int fuse_session_mount(struct fuse_session *se, const char *mountpoint)
{
	(void)se, (void)mountpoint;
	return 0;
}

void fuse_session_unmount(struct fuse_session *se)
{
	(void)se;
}

void fuse_session_destroy(struct fuse_session *se)
{
	(void)se;
}

int fuse_session_fd(struct fuse_session *se)
{
	(void)se;
	return -1;
}

int fuse_session_receive_buf(struct fuse_session *se, struct fuse_buf *buf)
{
	int n = *received++;

	if (n > 0 && !buf->mem)
		buf->mem = calloc(1, sizeof(struct fuse_in_header));
	if (n <= 0 && n != -ENOMEM)
		fuse_session_exit(se);
	return n;
}

void fuse_session_process_buf(struct fuse_session *se, const struct fuse_buf *buf)
{
	(void)se, (void)buf;
}

int fuse_session_exited(struct fuse_session *se)
{
	(void)se;
	return exited;
}

void fuse_session_exit(struct fuse_session *se)
{
	(void)se;
	exited = true;
}

static void log_line(void *ctx, int level, const char *line)
{
	(void)ctx, (void)level;
	print_message("%s\n", line);
}

enum { A_REQUEST = 1 };

static const struct {
	const char *name;
	int received[4], code;
	const char *text;
} cases[] = {
	{ "unmounted", { A_REQUEST, A_REQUEST, 0 }, 0, "" },
	{ "ended by a signal", { A_REQUEST, -EINTR }, 0, "" },
	{ "memory was short", { A_REQUEST, -ENOMEM, -ENOMEM, 0 }, 0, "" },
	{ "the connection broke", { A_REQUEST, -EIO }, -EIO, "serving it failed: Input/output error" },
};

static void how_a_mount_ends(void **state)
{
	const struct fs_options options = {
		.source = "x", .mountpoint = "/tmp", .foreground = true, .log = log_line, .max_threads = 1
	};
	const struct unshard_options plain = { UNSHARD_OPTIONS_INIT, .no_store = true };
	struct unshard_error err;
	unshard *u;
	size_t i;
	int code;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		print_message("%s\n", cases[i].name);
		assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &plain, &u, NULL), 0);
		err = (struct unshard_error){ 0 };
		received = cases[i].received;
		exited = false;
		code = fs_serve(u, &options, &err);
		assert_int_equal(code, cases[i].code);
		assert_non_null(strstr(err.text, cases[i].text));
		unshard_close(u);
	}
}

/* -- a source that does not answer -- */

static bool root_fails;
int __real_unshard_root(unshard *u, unshard_node **out, struct unshard_error *err);
int __wrap_unshard_root(unshard *u, unshard_node **out, struct unshard_error *err);

int __wrap_unshard_root(unshard *u, unshard_node **out, struct unshard_error *err)
{
	return root_fails ? fs_fail(err, -EIO, "run: the server has gone") : __real_unshard_root(u, out, err);
}

/* The library's own sentence is told, which says more than the code. */
static void why_the_root_cannot_be_shown(void **state)
{
	const struct fs_options options = { .source = "x", .mountpoint = "/tmp", .foreground = true };
	const struct unshard_options plain = { UNSHARD_OPTIONS_INIT, .no_store = true };
	struct unshard_error err = { 0 };
	unshard *u;

	(void)state;
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &plain, &u, NULL), 0);
	root_fails = true;
	assert_int_equal(fs_serve(u, &options, &err), -EIO);
	root_fails = false;
	assert_string_equal(err.text, "the root of x cannot be shown: run: the server has gone");
	unshard_close(u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(how_a_mount_ends),
		cmocka_unit_test(why_the_root_cannot_be_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
