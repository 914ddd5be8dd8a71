/* fs/ops.c over a real session, with requests and replies of our own in place of libfuse's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next allocations of the inode table fail: so many from now on. */
static unsigned out_of_memory;

static void *calloc_or_not(size_t n, size_t size)
{
	if (!out_of_memory)
		return calloc(n, size);
	out_of_memory--;
	return NULL;
}

#define calloc calloc_or_not
#include "../../fs/nodes.c"
#undef calloc
#include "../../fs/handles.c"
#include "../../fs/buffers.c"
#include "../../fs/refuse.c"
#include "../../fs/ops.c"

/* -- libfuse -- */

struct fuse_req {
	struct fs *fs;
	bool interrupted;
	int err;        /* of fuse_reply_err, -1 = none */
	char buf[8192]; /* of fuse_reply_buf */
	size_t n;
	struct fuse_entry_param entry;
	struct fuse_file_info fi;
};

void *fuse_req_userdata(fuse_req_t req)
{
	return req->fs;
}

int fuse_req_interrupted(fuse_req_t req)
{
	return req->interrupted;
}

static int sent(fuse_req_t req)
{
	return req->interrupted ? -ENOENT : 0;
}

int fuse_reply_err(fuse_req_t req, int err)
{
	req->err = err;
	return sent(req);
}

void fuse_reply_none(fuse_req_t req)
{
	(void)req;
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
	req->entry = *e;
	return sent(req);
}

int fuse_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
	(void)timeout;
	req->entry.attr = *attr;
	return sent(req);
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	assert_true(size <= sizeof(req->buf));
	memcpy(req->buf, buf, size);
	req->n = size;
	return sent(req);
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	req->fi = *fi;
	return sent(req);
}

int fuse_reply_readlink(fuse_req_t req, const char *link)
{
	(void)link;
	return sent(req);
}

int fuse_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
	(void)st;
	return sent(req);
}

int fuse_session_exited(struct fuse_session *se)
{
	(void)se;
	return 0;
}

/* Entries of 64 bytes: the name and where the next begins. */
enum { ENTRY = 64 };

size_t fuse_add_direntry_plus(fuse_req_t req, char *buf, size_t size, const char *name,
			      const struct fuse_entry_param *e, off_t off)
{
	(void)req, (void)e;
	if (buf && size >= ENTRY)
		snprintf(buf, ENTRY, "%d %s", (int)off, name);
	return ENTRY;
}

size_t fuse_add_direntry(fuse_req_t req, char *buf, size_t size, const char *name, const struct stat *attr, off_t off)
{
	(void)attr;
	return fuse_add_direntry_plus(req, buf, size, name, NULL, off);
}

/* -- a mount -- */

static int setup(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	static struct fs fs;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_node *root;

	memset(&fs, 0, sizeof(fs));
	out_of_memory = 0;
	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", &options, &fs.u, NULL), 0);
	assert_int_equal(unshard_root(fs.u, &root, NULL), 0);
	assert_int_equal(unshard_node_stat(root, &st, NULL), 0);
	assert_int_equal(fs_nodes_init(&fs.nodes, root, &st), 0);
	fs_handles_init(&fs.handles);
	fs_waits_init(&fs.waits, 16);
	fs_buffers_init(&fs.buffers);
	fs_pages_init(&fs.pages, FS_CACHE_BOTH);
	*state = &fs;
	return 0;
}

static int teardown(void **state)
{
	struct fs *fs = *state;

	fs_waits_fini(&fs->waits);
	fs_handles_fini(&fs->handles);
	fs_pages_fini(&fs->pages);
	fs_buffers_fini(&fs->buffers);
	fs_nodes_fini(&fs->nodes);
	unshard_close(fs->u);
	return 0;
}

static struct fuse_req request(struct fs *fs)
{
	return (struct fuse_req){ .fs = fs, .err = -1 };
}

/* The node id of a path, each component looked up. */
static fuse_ino_t lookup(struct fs *fs, const char *path)
{
	fuse_ino_t id = FUSE_ROOT_ID;
	char copy[128], *name;
	struct fuse_req req;

	snprintf(copy, sizeof(copy), "%s", path);
	for (name = strtok(copy, "/"); name; name = strtok(NULL, "/")) {
		req = request(fs);
		op_lookup(&req, id, name);
		assert_int_equal(req.err, -1);
		id = req.entry.ino;
	}
	return id;
}

static struct fuse_file_info open_dir(struct fs *fs, fuse_ino_t id)
{
	struct fuse_req req = request(fs);
	struct fuse_file_info fi = { 0 };

	op_opendir(&req, id, &fi);
	assert_int_equal(req.err, -1);
	return req.fi;
}

static void close_dir(struct fs *fs, struct fuse_file_info *fi)
{
	struct fuse_req req = request(fs);

	op_release(&req, 0, fi);
}

/* -- tests -- */

static void a_lookup_is_a_node(void **state)
{
	struct fs *fs = *state;
	struct fuse_req req = request(fs);
	fuse_ino_t dir = lookup(fs, "weights/checkpoint-2"), file;

	assert_int_equal(fs->nodes.n, 2);
	file = lookup(fs, "weights/checkpoint-2/model.safetensors");
	assert_int_equal(fs->nodes.n, 3);
	assert_int_equal(lookup(fs, "weights/checkpoint-2"), dir);
	assert_int_equal(fs_nodes_of_id(&fs->nodes, dir)->n_lookups, 3);
	req = request(fs);
	op_getattr(&req, file, NULL);
	assert_true(req.entry.attr.st_size > 0);
	op_forget(&req, file, 1);
	assert_int_equal(fs->nodes.n, 2);
}

/* What is absent is remembered where nothing can come while the inode stays: below a checkpoint's directory. */
static void an_absent_name_is_remembered(void **state)
{
	static const struct {
		const char *dir;
		bool remembered;
	} cases[] = { { "dcp", false }, { "dcp/checkpoint-2", false }, { "dcp/checkpoint-2/optimizer_0", true } };
	struct fs *fs = *state;
	struct fuse_req req;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		req = request(fs);
		op_lookup(&req, lookup(fs, cases[i].dir), "no such file");
		assert_int_equal(req.entry.ino, 0);
		assert_int_equal(req.entry.entry_timeout > 0, cases[i].remembered);
	}
}

static void an_interrupted_lookup_leaves_no_count(void **state)
{
	struct fs *fs = *state;
	fuse_ino_t weights = lookup(fs, "weights");
	struct fuse_req req = request(fs);

	req.interrupted = true;
	op_lookup(&req, weights, "checkpoint-2");
	assert_int_equal(fs->nodes.n, 1);
}

static void readdirplus_counts_each_entry_once(void **state)
{
	struct fs *fs = *state;
	fuse_ino_t id = lookup(fs, "weights/checkpoint-2");
	struct fuse_file_info fi = open_dir(fs, id);
	struct fuse_req req = request(fs);
	size_t i;

	op_readdirplus(&req, id, sizeof(req.buf), 0, &fi);
	assert_int_equal(req.err, -1);
	assert_string_equal(req.buf, "1 .");
	assert_string_equal(req.buf + ENTRY, "2 ..");
	assert_string_equal(req.buf + 2 * ENTRY, "3 config.json");
	assert_int_equal(req.n, 7 * ENTRY); /* config, generation_config, model, two of the tokenizer */
	assert_int_equal(fs->nodes.n, 2 + 5);
	for (i = 0; i < 3; i++) { /* again, from the third on, and with room for two */
		req = request(fs);
		op_readdirplus(&req, id, 2 * ENTRY + 10, 4, &fi);
		assert_int_equal(req.n, 2 * ENTRY);
	}
	assert_int_equal(fs->nodes.n, 2 + 5);
	assert_int_equal(fs_nodes_of_id(&fs->nodes, lookup(fs, "weights/checkpoint-2/model.safetensors"))->n_lookups,
			 1 + 3 + 1);
	close_dir(fs, &fi);
}

/* The kernel never sees such a reply, and forgets nothing of it. */
static void an_interrupted_readdirplus_leaves_no_counts(void **state)
{
	struct fs *fs = *state;
	fuse_ino_t id = lookup(fs, "weights/checkpoint-2");
	struct fuse_file_info fi = open_dir(fs, id);
	struct fuse_req req = request(fs);

	req.interrupted = true;
	op_readdirplus(&req, id, sizeof(req.buf), 0, &fi);
	assert_int_equal(req.n, 7 * ENTRY);
	assert_int_equal(fs->nodes.n, 2);
	close_dir(fs, &fi);
}

/* What there is no memory for is an error in the end, never the end of the directory. */
static void a_listing_without_memory_is_not_complete(void **state)
{
	struct fs *fs = *state;
	fuse_ino_t id = lookup(fs, "weights/checkpoint-2");
	struct fuse_file_info fi = open_dir(fs, id);
	struct fuse_req req = request(fs);

	out_of_memory = 1;
	op_readdirplus(&req, id, sizeof(req.buf), 0, &fi);
	assert_int_equal(req.n, 2 * ENTRY); /* the dots */
	req = request(fs);
	out_of_memory = 1;
	op_readdirplus(&req, id, sizeof(req.buf), 2, &fi);
	assert_int_equal(req.err, ENOMEM);
	req = request(fs);
	op_readdirplus(&req, id, sizeof(req.buf), 2, &fi);
	assert_int_equal(req.n, 5 * ENTRY);
	req = request(fs);
	op_readdirplus(&req, id, sizeof(req.buf), 7, &fi);
	assert_int_equal(req.err, -1);
	assert_int_equal(req.n, 0);
	assert_int_equal(fs->nodes.n, 2 + 5);
	close_dir(fs, &fi);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_lookup_is_a_node),
		TEST(an_absent_name_is_remembered),
		TEST(an_interrupted_lookup_leaves_no_count),
		TEST(readdirplus_counts_each_entry_once),
		TEST(an_interrupted_readdirplus_leaves_no_counts),
		TEST(a_listing_without_memory_is_not_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
