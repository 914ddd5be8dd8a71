/* Writing what was planned: every other file as it is, by the file system's own means where it has any. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "out/disk.h"
#include "repair/repairing.h"

enum { MAX_DEPTH = 64 };

struct copying {
	struct repair *r;
	struct repair_watch *watch;
};

static int copied_step(void *ctx, uint64_t n_bytes, struct uns_err *err)
{
	struct repair_watch *w = ((struct copying *)ctx)->watch;

	w->done_bytes += n_bytes;
	if (caller_progress(w->caller, UNSHARD_WRITING, w->done_bytes, w->total_bytes))
		return uns_fail(err, -EINTR, "interrupted; nothing was kept");
	return 0;
}

/* -- one file -- */

static int copy_whole(struct copying *c, const char *path, const char *out, int to, struct uns_stat *st,
		      struct uns_err *err)
{
	const struct uns_copied told = { copied_step, c };
	UNS_CLEANUP(uns_close_p) int from = -1;
	struct uns_identity after;

	UNS_TRY(uns_root_open_file(c->r->u->root, path, &from, st, err));
	UNS_TRY(uns_copy_file(from, path, to, out, st->id.size, &told, err));
	UNS_TRY(uns_fd_identity(from, true, &after, NULL, err));
	if (!uns_identity_equal(&after, &st->id))
		return uns_fail(err, -ESTALE, "%s changed while it was copied", path);
	return 0;
}

static int file_fill(struct copying *c, const char *path, const struct repair_file *plan, const char *out, int to,
		     struct uns_err *err)
{
	struct uns_stat st;
	struct timespec times[2];

	if (plan && plan->text)
		return uns_write(to, plan->text, strlen(plan->text), UNS_AT_CURSOR, out, err);
	if (plan)
		return repair_torch_write(c->r, plan->torch, to, out, err);
	UNS_TRY(copy_whole(c, path, out, to, &st, err));
	times[0] = times[1] =
		(struct timespec){ .tv_sec = st.id.mtime_ns / 1000000000, .tv_nsec = st.id.mtime_ns % 1000000000 };
	if (futimens(to, times) < 0)
		return uns_fail_errno(out, err);
	return 0;
}

/* A file, or directory, has the mode of what it is a copy of, less the umask; one that is new has the usual mode. */
static int mode_of(const struct copying *c, const char *path, mode_t usual, mode_t *out, struct uns_err *err)
{
	struct uns_stat st = { .mode = usual };
	int code = uns_root_stat(c->r->u->root, path, true, &st, err);

	*out = st.mode;
	return code == -ENOENT ? 0 : code;
}

static int write_file(struct copying *c, const char *path, const char *to, const struct repair_file *plan,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	mode_t mode;

	UNS_TRY(mode_of(c, path, 0644, &mode, err));
	fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode | S_IWUSR);
	if (fd < 0)
		return uns_fail_errno(to, err);
	UNS_TRY(file_fill(c, path, plan, to, fd, err));
	return fsync(fd) < 0 ? uns_fail_errno(to, err) : 0;
}

/* -- directories -- */

static int copy_dir(struct copying *c, const char *path, const char *to, int depth, struct uns_err *err);

static int copy_entry(struct copying *c, const char *path, const char *to, enum uns_kind kind, int depth,
		      struct uns_err *err)
{
	const struct repair_file *plan = repair_file_of(c->r, path);
	mode_t mode;
	const char *target;

	if (plan && plan->drop)
		return 0;
	if (kind == UNS_KIND_DIR) {
		UNS_TRY(mode_of(c, path, 0755, &mode, err));
		if (mkdir(to, mode | S_IRWXU) < 0)
			return uns_fail_errno(to, err);
		return copy_dir(c, path, to, depth + 1, err);
	}
	if (plan || kind == UNS_KIND_FILE)
		return write_file(c, path, to, plan, err);
	if (kind == UNS_KIND_LINK) {
		UNS_TRY(uns_root_readlink(c->r->u->root, path, &c->r->arena, &target, err));
		return symlink(target, to) < 0 ? uns_fail_errno(to, err) : 0;
	}
	return uns_fail(err, -ENOTSUP, "%s is neither a file, a directory nor a link", path);
}

/* Files that are made and have no old form. */
static int write_new(struct copying *c, const char *path, const struct uns_listing *list, const char *to,
		     struct uns_err *err)
{
	const char *name, *key;
	char out[PATH_MAX];
	size_t at = 0;
	void *value;

	while (uns_map_next(&c->r->by_path, &at, &key, &value)) {
		const struct repair_file *plan = value;
		size_t dir = strlen(path);

		if (plan->drop || strncmp(key, path, dir) != 0 || (dir && key[dir] != '/'))
			continue;
		name = key + dir + (dir ? 1 : 0);
		if (strchr(name, '/') || uns_listing_find(list, name))
			continue;
		snprintf(out, sizeof(out), "%s/%s", to, name);
		UNS_TRY(write_file(c, key, out, plan, err));
	}
	return 0;
}

static int copy_dir(struct copying *c, const char *path, const char *to, int depth, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing list;
	char *child, *out;
	size_t i;

	if (depth > MAX_DEPTH)
		return uns_fail(err, -ELOOP, "%s: directories too deep", path);
	UNS_TRY(uns_root_list(c->r->u->root, path, &arena, &list, err));
	for (i = 0; i < list.n; i++) {
		child = uns_path_join(&arena, path, list.v[i].name);
		out = uns_arena_printf(&arena, "%s/%s", to, list.v[i].name);
		UNS_TRY_ALLOC(child && out, err);
		UNS_TRY(copy_entry(c, child, out, list.v[i].kind, depth, err));
	}
	UNS_TRY(write_new(c, path, &list, to, err));
	return uns_sync_dir(to, err);
}

static int add_sizes(struct repair *r, const char *path, int depth, uint64_t *bytes, struct uns_err *err)
{
	const struct walk others = { .u = r->u, .ctx = r, .unreadable = repair_visit_unreadable };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err why = { 0 };
	struct uns_listing list;
	struct uns_stat st;
	const char *child;
	size_t i;

	if (uns_root_list(r->u->root, path, &arena, &list, &why) < 0)
		return depth ? walk_past(&others, path, &why, err) : uns_fail_copy(err, &why);
	for (i = 0; i < list.n && depth < MAX_DEPTH; i++) {
		UNS_TRY_ALLOC(child = uns_path_join(&arena, path, list.v[i].name), err);
		if (repair_file_of(r, child))
			continue;
		if (list.v[i].kind == UNS_KIND_DIR)
			UNS_TRY(add_sizes(r, child, depth + 1, bytes, err));
		else if (uns_root_stat(r->u->root, child, false, &st, NULL) == 0)
			*bytes += st.id.size;
	}
	return 0;
}

int repair_measure(struct repair *r, const char *path, uint64_t *bytes, struct uns_err *err)
{
	return add_sizes(r, path, 0, bytes, err);
}

int repair_copy(struct repair *r, const char *to, struct repair_watch *watch, struct uns_err *err)
{
	struct copying c = { r, watch };

	return copy_dir(&c, r->path, to, 0, err);
}
