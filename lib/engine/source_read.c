/* Checked reads of source files. */
#include "engine/source_read.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/engine.h"

/* Of bytes that lie between two reads no more is read, so that storage sees one read behind the other. A view has the
 * tensors of a layer in another order than a shard has: its reader wants the bytes between soon. */
#define BETWEEN_BYTES (UINT64_C(8) << 20)
#define STEP_BYTES    (UINT64_C(1) << 20) /* of them at one go */

/* For tests and benchmarks: storage that answers slowly. */
static void delay_for_tests(unsigned us)
{
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	while (us && nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static int count_failure(struct uns_backing *b, int code)
{
	if (code == -ESTALE)
		uns_count(&b->engine->count.stale, 1);
	else if (code == -EIO)
		uns_count(&b->engine->count.io_errors, 1);
	return code;
}

static void count_read(struct uns_backing *b, const struct uns_fd_slot *slot, size_t len)
{
	uns_count(&b->engine->count.source_reads, 1);
	uns_count(&b->engine->count.source_read_bytes, len);
	if (uns_direct_is_on(&slot->direct))
		uns_count(&b->engine->count.direct_read_bytes, len);
}

/* Of a pinned slot, unchecked. */
static int pread_pinned(struct uns_backing *b, struct uns_fd_slot *slot, const struct uns_file *file, void *buf,
			size_t len, uint64_t off, struct uns_err *err)
{
	int code;

	delay_for_tests(b->engine->delay_read_us);
	code = uns_direct_pread(&slot->direct, slot->fd, buf, len, off, file->path, err);
	if (code < 0)
		uns_fail_in(err, "%s", uns_root_path(file->root));
	return code;
}

/* If a file has changed, that is why a read of it has failed. */
static int why_failed(struct uns_backing *b, struct uns_fd_slot *slot, const struct uns_file *file,
		      const struct uns_err *failed, struct uns_err *err)
{
	struct uns_err changed = { 0 };

	return uns_fail_as(err, uns_fds_check(&b->engine->fds, slot, file, &changed) == -ESTALE ? &changed : failed);
}

/* A check before the read would find nothing that the one after it does not. The slot is pinned. */
static int read_pinned(struct uns_backing *b, struct uns_fd_slot *slot, const struct uns_file *file, struct uns_how how,
		       void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	struct uns_err failed = { 0 };

	if (how.may_wait && pread_pinned(b, slot, file, buf, len, off, &failed) < 0)
		return why_failed(b, slot, file, &failed, err);
	if (!how.may_wait && (slot->no_pages || uns_fd_pread_now(slot->fd, buf, len, off) < 0))
		return -EAGAIN;
	if (!how.unchecked || !uns_unchecked_add(how.unchecked, slot, file))
		UNS_TRY(uns_fds_check(&b->engine->fds, slot, file, err));
	count_read(b, slot, len);
	return 0;
}

static int read_from(struct uns_backing *b, struct uns_fd_slot *slot, uint32_t file, struct uns_how how, void *buf,
		     size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[file];
	int code;

	UNS_TRY(uns_fds_pin(&b->engine->fds, slot, f, err));
	code = read_pinned(b, slot, f, how, buf, len, off, err);
	uns_fds_unpin(&b->engine->fds, slot);
	return code;
}

/* The bytes between go into the page cache, where the request that wants them finds them, and checks them. */
static int read_between(struct uns_backing *b, uint32_t file, uint64_t at, uint64_t end, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) void *scratch = NULL;
	struct uns_fd_slot *slot = &b->turn_slot[file];
	const struct uns_file *f = &b->cat->files[file];
	size_t len;

	if (at >= end || end - at > BETWEEN_BYTES)
		return 0;
	UNS_TRY_ALLOC(scratch = malloc((size_t)uns_u64_min(end - at, STEP_BYTES)), err);
	UNS_TRY(uns_fds_pin(&b->engine->fds, slot, f, err));
	for (; at < end; at += len) {
		len = (size_t)uns_u64_min(end - at, STEP_BYTES);
		if (pread_pinned(b, slot, f, scratch, len, at, NULL) < 0)
			break; /* the wanted bytes may be there */
		count_read(b, slot, len);
	}
	uns_fds_unpin(&b->engine->fds, slot);
	return 0;
}

/* What is being tried of a storage may be another way by now. */
static bool turns_are_wanted(void *ctx)
{
	struct uns_backing *b = ctx;
	enum uns_way trying = b->engine->way;

	if (b->finds_way)
		uns_ways_chosen(&b->engine->ways, b->dev, &trying);
	return trying == UNS_WAY_TURNS;
}

static int read_in_turn(struct uns_backing *b, uint32_t file, struct uns_how how, void *buf, size_t len, uint64_t off,
			struct uns_err *err)
{
	const struct uns_how now = { .way = how.way, .unchecked = how.unchecked };
	struct uns_fd_slot *slot = &b->turn_slot[file];
	uint64_t next, end = off + len;
	int code;

	if (!uns_turn_take(&b->turns, &b->turn[file], off, turns_are_wanted, b, &next))
		return read_from(b, &b->slot[file], file, how, buf, len, off, err);
	code = read_between(b, file, next, off, err);
	if (code == 0 && end <= next && read_from(b, slot, file, now, buf, len, off, NULL) == 0)
		end = next; /* it was in memory: storage has seen no read */
	else if (code == 0)
		code = read_from(b, slot, file, how, buf, len, off, err);
	if (code == 0)
		uns_count(&b->engine->count.ordered_read_bytes, len);
	uns_turn_pass(&b->turns, &b->turn[file], end);
	return code;
}

int uns_source_pread_how(struct uns_backing *b, uint32_t file, struct uns_how how, void *buf, size_t len, uint64_t off,
			 struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[file];
	struct uns_fds *fds = &b->engine->fds;
	struct uns_fd_slot *slot = how.way == UNS_WAY_TURNS ? &b->turn_slot[file] : &b->slot[file];
	bool past;
	int code = 0;

	if (b->engine->delay_read_us && !how.may_wait)
		return -EAGAIN;
	if (!uns_inside(off, len, f->stat.id.size) && !f->missing)
		return uns_fail(err, -EBADMSG, "%s/%s: bytes %llu+%zu pass its end at %llu", uns_root_path(f->root),
				f->path, (unsigned long long)off, len, (unsigned long long)f->stat.id.size);
	if (!how.may_wait && b->is_far && !uns_fds_is_open(fds, slot)) /* to open it is to wait */
		return -EAGAIN;
	if ((how.way == UNS_WAY_SUITED || how.way == UNS_WAY_LONG) && (code = uns_fds_pin(fds, slot, f, err)) == 0) {
		past = how.way == UNS_WAY_LONG ? uns_direct_is_long(slot->fd, off, len)
					       : uns_direct_suits(slot->fd, off, len);
		how.way = past ? UNS_WAY_DIRECT : UNS_WAY_CACHE;
		uns_fds_unpin(fds, slot);
	}
	if (how.way == UNS_WAY_DIRECT && !how.may_wait)
		return -EAGAIN;
	if (code == 0 && how.way == UNS_WAY_TURNS && how.may_wait)
		code = read_in_turn(b, file, how, buf, len, off, err);
	else if (code == 0)
		code = read_from(b, how.way == UNS_WAY_DIRECT ? &b->direct_slot[file] : slot, file, how, buf, len, off,
				 err);
	return count_failure(b, code);
}

int uns_source_check_read(struct uns_backing *b, const struct uns_unchecked *unchecked, struct uns_err *err)
{
	return count_failure(b, uns_unchecked_check(unchecked, &b->engine->fds, err));
}

enum uns_way uns_source_way(struct uns_backing *b)
{
	enum uns_way trying;

	return b->finds_way ? uns_ways_chosen(&b->engine->ways, b->dev, &trying) : b->engine->way;
}

bool uns_source_in_turn(struct uns_backing *b)
{
	return uns_source_way(b) == UNS_WAY_TURNS;
}

/* Of what is no element. */
static enum uns_way way_of_others(struct uns_backing *b)
{
	return uns_source_in_turn(b) ? UNS_WAY_TURNS : UNS_WAY_CACHE;
}

int uns_source_pread(struct uns_backing *b, uint32_t file, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_how how = { way_of_others(b), .may_wait = true };

	return uns_source_pread_how(b, file, how, buf, len, off, err);
}

bool uns_source_will_read(struct uns_backing *b, uint32_t file, uint64_t at, uint64_t end)
{
	const struct uns_file *f = &b->cat->files[file];
	struct uns_fd_slot *slot = &b->slot[file];
	bool comes, keeps;

	end = uns_u64_min(end, f->stat.id.size);
	if (at >= end || uns_fds_pin(&b->engine->fds, slot, f, NULL) < 0)
		return false;
	comes = uns_fd_will_read(slot->fd, at, end);
	keeps = !slot->no_pages;
	if (keeps && !uns_fd_has(slot->fd, (size_t)(end - at), at))
		posix_fadvise(slot->fd, (off_t)at, (off_t)(end - at), POSIX_FADV_WILLNEED);
	uns_fds_unpin(&b->engine->fds, slot);
	return comes || keeps;
}

int uns_backing_lend(struct uns_backing *b, uint32_t file, int (*use)(void *ctx, int fd, struct uns_err *err),
		     void *ctx, struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[file];
	struct uns_fds *fds = &b->engine->fds;
	struct uns_fd_slot *slot = &b->slot[file];
	int code = uns_fds_pin(fds, slot, f, err);

	if (code < 0)
		return count_failure(b, code);
	code = uns_fds_check(fds, slot, f, err);
	if (code == 0)
		code = use(ctx, slot->fd, err);
	if (code == 0)
		code = uns_fds_check(fds, slot, f, err);
	uns_fds_unpin(fds, slot);
	return count_failure(b, code);
}

int uns_backing_check(struct uns_backing *b, uint32_t file, struct uns_err *err)
{
	const struct uns_file *f = &b->cat->files[file];
	int code = uns_fds_pin(&b->engine->fds, &b->slot[file], f, err);

	if (code == 0) {
		code = uns_fds_check(&b->engine->fds, &b->slot[file], f, err);
		uns_fds_unpin(&b->engine->fds, &b->slot[file]);
	}
	return count_failure(b, code);
}

static int source_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_source_file *source = self;
	const struct uns_how how = { way_of_others(source->backing), true, source->unchecked };

	return uns_source_pread_how(source->backing, source->file, how, buf, len, off, err);
}

struct uns_reader uns_reader_of_source(struct uns_source_file *source)
{
	const struct uns_file *f = &source->backing->cat->files[source->file];

	return (struct uns_reader){ source_pread, source, f->stat.id.size };
}
