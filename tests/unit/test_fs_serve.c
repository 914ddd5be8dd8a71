/* fs/serve.c: what the end of a mount was, with a libfuse of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>

#include "../../fs/serve.c"

static int loop_result;

struct fuse_session *fuse_session_new(struct fuse_args *args, const struct fuse_lowlevel_ops *op,
				      size_t op_size, void *userdata)
{
	(void)args, (void)op, (void)op_size;
	return userdata;
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

int fuse_session_receive_buf(struct fuse_session *se, struct fuse_buf *buf)
{
	(void)se, (void)buf;
	return 1;
}

void fuse_session_process_buf(struct fuse_session *se, const struct fuse_buf *buf)
{
	(void)se, (void)buf;
}

int fuse_session_exited(struct fuse_session *se)
{
	(void)se;
	return 0;
}

int fuse_session_loop_mt(struct fuse_session *se, struct fuse_loop_config *config)
{
	(void)se, (void)config;
	return loop_result;
}

static void log_line(void *ctx, int level, const char *line)
{
	(void)ctx, (void)level;
	print_message("%s\n", line);
}

static const struct {
	const char *name;
	int loop, code;
	const char *text;
} cases[] = {
	{ "unmounted", 0, 0, "" },
	{ "ended by a signal", SIGTERM, 0, "" },
	{ "no thread could be started", -1, -EIO, "serving it failed: Input/output error" },
	{ "the connection broke", -ENODEV, -ENODEV, "serving it failed: No such device" },
};

static void how_a_mount_ends(void **state)
{
	const struct fs_options options = {
		.source = "x", .mountpoint = "/tmp", .foreground = true, .log = log_line
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
		loop_result = cases[i].loop;
		code = fs_serve(u, &options, &err);
		assert_int_equal(code, cases[i].code);
		assert_non_null(strstr(err.text, cases[i].text));
		unshard_close(u);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(how_a_mount_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
