/* The least that a FUSE server can do: one file, whose bytes are those of one source file. What a
 * mount costs beyond this is its own doing; what this costs beyond the source file is FUSE's.
 *
 *     one_file_fs SOURCE MOUNTPOINT [DELAY_US [one]]
 *
 * Serves MOUNTPOINT/file in the foreground until it is unmounted or gets a signal. With a delay, every read
 * takes so many microseconds more: storage at the other end of a network, that answers many requests at once. Request
 * size, threads, queue and page cache are as in fs/; read-ahead is for the caller to set. When it has ended, it prints
 * how many reads there were, and how many of them at once, at most. */
#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	FILE_INO = 2,
	REQUEST_BYTES = 1 << 20,
	PAGE_BYTES = 4096,
	THREADS = 16,
	DELAYED_THREADS = 64,
	BACKGROUND_REQUESTS = 64,
};
static const double FOREVER_SECONDS = 3600;
static const char FILE_NAME[] = "file";
static atomic_uint reads, reads_now, most_reads;

struct source {
	int fd;
	useconds_t delay_us;
	bool one_at_a_time;
	struct stat st;
};

static struct stat attr_of(const struct source *source, fuse_ino_t ino)
{
	struct stat st = { .st_ino = ino, .st_mode = S_IFDIR | 0555, .st_nlink = 2 };

	if (ino == FILE_INO) {
		st = source->st;
		st.st_ino = ino;
		st.st_mode = S_IFREG | 0444;
		st.st_nlink = 1;
	}
	return st;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = { .ino = FILE_INO,
					  .attr = attr_of(fuse_req_userdata(req), FILE_INO),
					  .attr_timeout = FOREVER_SECONDS,
					  .entry_timeout = FOREVER_SECONDS };

	if (parent == FUSE_ROOT_ID && !strcmp(name, FILE_NAME))
		fuse_reply_entry(req, &entry);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st = attr_of(fuse_req_userdata(req), ino);

	(void)fi;
	fuse_reply_attr(req, &st, FOREVER_SECONDS);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	const struct stat st = attr_of(fuse_req_userdata(req), FILE_INO);
	char entry[128];
	size_t n = off ? 0 : fuse_add_direntry(req, entry, sizeof(entry), FILE_NAME, &st, 1);

	(void)ino;
	(void)fi;
	fuse_reply_buf(req, entry, n < size ? n : 0);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fi->keep_cache = true;
	fi->noflush = true;
	fuse_reply_open(req, fi);
}

static void count_read(void)
{
	unsigned now = atomic_fetch_add(&reads_now, 1) + 1, most = atomic_load(&most_reads);

	while (now > most && !atomic_compare_exchange_weak(&most_reads, &most, now))
		;
	atomic_fetch_add(&reads, 1);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	static _Thread_local char buf[REQUEST_BYTES] __attribute__((aligned(PAGE_BYTES)));
	const struct source *source = fuse_req_userdata(req);
	ssize_t n;

	(void)ino;
	(void)fi;
	count_read();
	n = pread(source->fd, buf, size < sizeof(buf) ? size : sizeof(buf), off);
	if (source->delay_us)
		usleep(source->delay_us);
	atomic_fetch_sub(&reads_now, 1);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	const unsigned unwanted = FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE;
	const struct source *source = userdata;

	conn->want &= ~unwanted;
	if (source->one_at_a_time)
		conn->want &= ~(unsigned)FUSE_CAP_ASYNC_READ;
	conn->max_read = REQUEST_BYTES;
	conn->max_background = BACKGROUND_REQUESTS;
	conn->congestion_threshold = BACKGROUND_REQUESTS * 3 / 4;
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.readdir = op_readdir,
	.open = op_open,
	.read = op_read,
};

static int serve(struct fuse_session *se, const char *mountpoint, unsigned threads)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int code = 1;

	fuse_loop_cfg_set_max_threads(config, threads);
	fuse_loop_cfg_set_idle_threads(config, threads);
	fuse_loop_cfg_set_clone_fd(config, 1);
	if (fuse_set_signal_handlers(se) == 0 && fuse_session_mount(se, mountpoint) == 0) {
		code = fuse_session_loop_mt(se, config) < 0;
		fuse_session_unmount(se);
		fuse_remove_signal_handlers(se);
	}
	fuse_loop_cfg_destroy(config);
	return code;
}

int main(int argc, char **argv)
{
	char *options[] = { argv[0], "-oro,nosuid,nodev,max_read=1048576,subtype=one_file" };
	struct fuse_args args = FUSE_ARGS_INIT(2, options);
	struct fuse_session *se;
	struct source source = { 0 };
	int code;

	if (argc < 3 || argc > 5 || (argc == 5 && strcmp(argv[4], "one"))) {
		fprintf(stderr, "usage: %s SOURCE MOUNTPOINT [DELAY_US [one]]\n", argv[0]);
		return 2;
	}
	source.fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (source.fd < 0 || fstat(source.fd, &source.st) < 0) {
		perror(argv[1]);
		return 2;
	}
	source.delay_us = argc > 3 ? (useconds_t)strtoul(argv[3], NULL, 10) : 0;
	source.one_at_a_time = argc == 5;
	se = fuse_session_new(&args, &ops, sizeof(ops), &source);
	if (!se)
		return 2;
	code = serve(se, argv[2], source.delay_us ? DELAYED_THREADS : THREADS);
	fuse_session_destroy(se);
	close(source.fd);
	printf("%u %u\n", atomic_load(&reads), atomic_load(&most_reads));
	return code;
}
