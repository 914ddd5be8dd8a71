/* Bytes, block by block, each a pool's item. A file is open from its first block to its last; then it is synced.
 * Blocks are taken in order, so that as many files are open as there are threads. */
#include "export/exporting.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/search.h"
#include "engine/engine.h"
#include "out/disk.h"
#include "paths/files.h"

enum { BLOCK_BYTES = 2 << 20, MAX_BUFFERS = 64 };

/* A file, as long as blocks of it are written. */
struct open_file {
	pthread_mutex_t lock; /* opening; the rest is constant then */
	unshard_file *from;
	struct uns_backing *backing; /* of the one source file that it is; NULL = it is put together */
	uint32_t source;
	int to;
	_Atomic uint64_t left; /* blocks */
};

struct work {
	struct export *e;
	bool verify;
	struct export_entry **file; /* those that have blocks, in order */
	struct open_file *open;     /* parallel to it */
	size_t n;
	uint64_t n_blocks, total_bytes;
	_Atomic uint64_t done_bytes, kept_bytes;

	pthread_mutex_t lock; /* buffers that no thread uses */
	uint8_t *buffer[MAX_BUFFERS];
	size_t n_buffers;
};

/* -- buffers: two blocks each, kept from one item to the next -- */

static uint8_t *take_buffer(struct work *w)
{
	uint8_t *buffer = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->n_buffers)
		buffer = w->buffer[--w->n_buffers];
	pthread_mutex_unlock(&w->lock);
	return buffer ? buffer : malloc(2 * BLOCK_BYTES);
}

static void give_buffer(struct work *w, uint8_t *buffer)
{
	pthread_mutex_lock(&w->lock);
	if (w->n_buffers < MAX_BUFFERS) {
		w->buffer[w->n_buffers++] = buffer;
		buffer = NULL;
	}
	pthread_mutex_unlock(&w->lock);
	free(buffer);
}

/* -- files -- */

static int open_to(const struct work *w, const struct export_entry *f, struct open_file *o, struct uns_err *err)
{
	char path[PATH_MAX];

	UNS_TRY(export_path(w->e, f->path, path, err));
	if (!w->verify)
		return uns_open_to_write(path, O_RDWR, 0, &o->to, err);
	o->to = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return o->to < 0 ? uns_fail_errno(path, err) : 0;
}

static int open_both(const struct work *w, const struct export_entry *f, struct open_file *o, struct uns_err *err)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error why = { 0 };
	int code;

	if (o->from)
		return 0;
	if (o->to < 0)
		UNS_TRY(open_to(w, f, o, err));
	code = unshard_node_open(f->node, NULL, &o->from, &st, &why);
	if (code < 0)
		return export_fail(err, code, &why);
	if (!w->verify && !f->was_there && !file_is_source(o->from, &o->backing, &o->source))
		o->backing = NULL;
	return 0;
}

/* All bytes are there: mode, times and size, and all of it on the disk. */
static int finish_file(const struct work *w, const struct export_entry *f, int fd, struct uns_err *err)
{
	const struct timespec t = { .tv_sec = f->stat.mtime_ns / 1000000000, .tv_nsec = f->stat.mtime_ns % 1000000000 };
	char path[PATH_MAX];

	UNS_TRY(export_path(w->e, f->path, path, err));
	if (ftruncate(fd, (off_t)f->stat.size_bytes) < 0 || fchmod(fd, (f->stat.mode | S_IWUSR) & ~w->e->umask) < 0 ||
	    futimens(fd, (const struct timespec[]){ t, t }) < 0 || fsync(fd) < 0)
		return uns_fail_errno(path, err);
	if (w->e->flags & UNSHARD_EXPORT_VERIFY)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* what is read back comes from the disk */
	return 0;
}

static void close_both(struct open_file *o)
{
	unshard_file_close(o->from);
	o->from = NULL;
	uns_close_p(&o->to);
	o->to = -1;
}

/* -- one block -- */

struct block {
	struct work *w;
	const struct export_entry *f;
	struct open_file *o;
	uint64_t at;
	size_t len;
};

static int fail_block(const struct block *b, int code, const char *why, struct uns_err *err)
{
	char path[PATH_MAX];

	UNS_TRY(export_path(b->w->e, b->f->path, path, err));
	return uns_fail(err, code, "%s: %s", path, why);
}

static int read_view(const struct block *b, uint8_t *buf, struct uns_err *err)
{
	struct unshard_error why = { 0 };
	ssize_t got = unshard_pread(b->o->from, buf, b->len, b->at, &why);

	if (got < 0)
		return export_fail(err, (int)got, &why);
	return (size_t)got == b->len ? 0 : fail_block(b, -ESTALE, "it became shorter while it was read", err);
}

/* Whether the file on the disk has these bytes; bytes that it lacks differ. */
static int block_is_there(const struct block *b, const uint8_t *want, uint8_t *scratch, bool *equal,
			  struct uns_err *err)
{
	size_t done = 0;
	ssize_t n = 1;

	while (done < b->len && n) {
		n = pread(b->o->to, scratch + done, b->len - done, (off_t)(b->at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_block(b, -errno, strerror(errno), err);
		done += (size_t)n;
	}
	*equal = done == b->len && memcmp(want, scratch, b->len) == 0;
	return 0;
}

static int lend_block(void *ctx, int fd, struct uns_err *err)
{
	struct block *b = ctx;
	uint64_t n = uns_copy_in_kernel(fd, b->o->to, b->at, b->len);

	(void)err;
	b->at += n;
	b->len -= (size_t)n;
	return 0;
}

static int write_block(const struct block *whole, uint8_t *buf, struct uns_err *err)
{
	struct block b = *whole; /* what is still to be written of it */
	char path[PATH_MAX];
	bool equal = false;

	UNS_TRY(export_path(b.w->e, b.f->path, path, err));
	if (b.o->backing)
		UNS_TRY(uns_backing_lend(b.o->backing, b.o->source, lend_block, &b, err));
	if (b.len) {
		UNS_TRY(read_view(&b, buf, err));
		if (b.f->was_there)
			UNS_TRY(block_is_there(&b, buf, buf + BLOCK_BYTES, &equal, err));
		if (!equal)
			UNS_TRY(uns_write(b.o->to, buf, b.len, (int64_t)b.at, path, err));
	}
	if (equal)
		b.w->kept_bytes += b.len;
	else /* the disk is at work already while more is put together */
		sync_file_range(b.o->to, (off_t)whole->at, (off_t)whole->len, SYNC_FILE_RANGE_WRITE);
	return 0;
}

static int verify_block(const struct block *b, uint8_t *buf, struct uns_err *err)
{
	bool equal;

	UNS_TRY(read_view(b, buf, err));
	UNS_TRY(block_is_there(b, buf, buf + BLOCK_BYTES, &equal, err));
	return equal ? 0 : fail_block(b, -EIO, "what was written is not what is read back", err);
}

/* -- all blocks -- */

static int block_run(void *ctx, size_t item, struct uns_err *err)
{
	struct work *w = ctx;
	struct block b = { .w = w };
	struct export_entry *f;
	struct open_file *o;
	uint8_t *buf;
	size_t i;
	int code;

	UNS_SEARCH(i, w->n, w->file[i]->first_block <= item); /* the first file behind the block's own */
	b.f = f = w->file[i - 1];
	b.o = o = &w->open[i - 1];
	b.at = (item - f->first_block) * BLOCK_BYTES;
	b.len = (size_t)uns_u64_min(BLOCK_BYTES, f->stat.size_bytes - b.at);
	pthread_mutex_lock(&o->lock);
	code = open_both(w, f, o, err);
	pthread_mutex_unlock(&o->lock);
	UNS_TRY(code);
	UNS_TRY_ALLOC(buf = take_buffer(w), err);
	code = (w->verify ? verify_block : write_block)(&b, buf, err);
	give_buffer(w, buf);
	if (code == 0)
		code = export_step(w->e, w->verify ? UNSHARD_READING : UNSHARD_WRITING, &w->done_bytes, b.len,
				   w->total_bytes, err);
	if (code < 0 || atomic_fetch_sub(&o->left, 1) != 1)
		return code;
	code = w->verify ? 0 : finish_file(w, f, o->to, err);
	close_both(o);
	return code;
}

/* Files without a block to write are finished at once. */
static int add_file(struct work *w, struct export_entry *f, struct uns_err *err)
{
	struct open_file *o = &w->open[w->n];
	uint64_t n = f->shared && !w->verify ? 0 : (f->stat.size_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
	int code;

	if (!n && w->verify)
		return 0;
	if (!n) {
		o->to = -1;
		code = open_to(w, f, o, err);
		if (code == 0)
			code = finish_file(w, f, o->to, err);
		close_both(o);
		return code;
	}
	*o = (struct open_file){ .to = -1, .left = n };
	pthread_mutex_init(&o->lock, NULL);
	f->first_block = w->n_blocks;
	w->file[w->n++] = f;
	w->n_blocks += n;
	w->total_bytes += f->stat.size_bytes;
	return 0;
}

static void work_fini(struct work *w)
{
	size_t i;

	for (i = 0; i < w->n; i++) {
		close_both(&w->open[i]);
		pthread_mutex_destroy(&w->open[i].lock);
	}
	while (w->n_buffers)
		free(w->buffer[--w->n_buffers]);
	pthread_mutex_destroy(&w->lock);
	free(w->file);
	free(w->open);
}

static int work_all(struct export *e, bool verify, struct uns_pool *pool, struct uns_err *err)
{
	struct work w = { .e = e, .verify = verify, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct export_entry *x = e->entry, *end = x + e->n;
	int code;

	w.file = calloc(e->n + 1, sizeof(*w.file));
	w.open = calloc(e->n + 1, sizeof(*w.open));
	code = w.file && w.open ? 0 : uns_oom(err);
	for (; x < end && code == 0; x++)
		if (x->kind == EXPORT_FILE)
			code = add_file(&w, x, err);
	if (w.n && code == 0)
		code = uns_pool_each(pool, w.n_blocks, block_run, &w, err);
	if (!verify)
		e->made.kept_bytes = w.kept_bytes;
	work_fini(&w);
	return code;
}

int export_write(struct export *e, struct uns_pool *pool, struct uns_err *err)
{
	return work_all(e, false, pool, err);
}

int export_verify(struct export *e, struct uns_pool *pool, struct uns_err *err)
{
	return work_all(e, true, pool, err);
}
