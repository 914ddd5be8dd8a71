/* Directories by path, each with its listing and, once filled, a stat for each entry; and the stats of
 * single paths elsewhere. The descriptor of the capture's own directory is kept until it is filled,
 * because probing needs its names and only a checkpoint's files are worth a stat. */
#include "io/capture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "base/search.h"
#include "io/access.h"
#include "io/numbers.h"

/* What a stat answered. */
struct seen {
	struct uns_stat stat;
	int code;
};

struct dir {
	const struct uns_root *root;
	const char *path;
	struct uns_stat stat;
	struct uns_listing list;
	struct uns_kept_list *kept; /* whose the list is; NULL = the capture's own */
	struct seen *seen; /* of each entry; NULL = not filled */
};

struct uns_capture {
	const struct uns_root *root;
	const char *path, *hidden;
	struct uns_kept_lists *lists;
	struct uns_stat top;
	int fd; /* of the directory's path; -1 = closed */
	struct uns_arena arena;
	struct dir **dir; /* in the order in which they were listed */
	size_t n_dirs, cap_dirs;
	struct uns_map by_path; /* of dir; for the keys see key_of */
	struct uns_map single;  /* -> struct seen */
	struct uns_inputs *inputs;
	struct uns_err fault;   /* uns_capture_fault */
};

enum { KEY_BYTES = PATH_MAX + 32 };

/* Paths below the capture's own root are their own keys; no such path begins with a slash. */
static const char *key_of(const struct uns_capture *c, const struct uns_root *root, const char *path, char *buf)
{
	if (root == c->root)
		return path;
	snprintf(buf, KEY_BYTES, "/%p/%s", (const void *)root, path);
	return buf;
}

bool uns_capture_is_fault(int code)
{
	return code < 0 && code != -EACCES && !uns_code_is_finding(code);
}

/* Returns the code, and keeps a failure of the moment. */
static int note_fault(struct uns_capture *c, const struct uns_root *root, int code, const char *path)
{
	if (uns_capture_is_fault(code))
		uns_root_fail(root, path, code, &c->fault);
	return code;
}

void uns_capture_note_fault(struct uns_capture *c, const struct uns_err *why)
{
	if (c && uns_capture_is_fault(why->code))
		uns_fail_as(&c->fault, why);
}

int uns_capture_fault(const struct uns_capture *c, struct uns_err *err)
{
	return c->fault.code ? uns_fail_as(err, &c->fault) : 0;
}

void uns_capture_free(struct uns_capture *c)
{
	size_t i;

	if (!c)
		return;
	for (i = 0; i < c->n_dirs; i++)
		uns_kept_list_put(c->dir[i]->kept);
	uns_close_p(&c->fd);
	uns_map_fini(&c->by_path);
	uns_map_fini(&c->single);
	uns_inputs_put(c->inputs);
	uns_arena_fini(&c->arena);
	free(c);
}

int uns_capture_new(const struct uns_root *root, const char *path, const char *hidden, struct uns_capture **out,
		    struct uns_err *err)
{
	return uns_capture_new_of(root, path, hidden, false, NULL, out, err);
}

/* What is no directory is a file; fails with `why` where it is none, or cannot be looked at now. */
static int open_file(struct uns_capture *c, struct uns_err *why)
{
	struct uns_err own = { 0 };
	int code = uns_root_stat(c->root, c->path, true, &c->top, &own);

	if (code == 0 && c->top.kind == UNS_KIND_FILE)
		return 0;
	if (code == 0 || uns_code_is_finding(code))
		return why->code;
	*why = own;
	return code;
}

int uns_capture_new_of(const struct uns_root *root, const char *path, const char *hidden, bool file,
		       struct uns_kept_lists *lists, struct uns_capture **out, struct uns_err *err)
{
	struct uns_capture *c = calloc(1, sizeof(*c));
	struct uns_err why = { 0 };
	int code;

	UNS_TRY_ALLOC(c, err);
	c->root = root;
	c->lists = lists;
	c->hidden = hidden && *hidden ? hidden : NULL;
	c->fd = -1;
	c->path = uns_arena_str(&c->arena, path);
	c->inputs = uns_inputs_new();
	code = c->path && c->inputs ? uns_root_open_dir_path(root, path, &c->fd, &c->top, &why) : uns_oom(&why);
	if ((code == -ENOENT || code == -ENOTDIR) && file)
		code = open_file(c, &why);
	if (code == -ENOENT && uns_root_stat(root, path, true, &c->top, NULL) == 0)
		code = uns_fail(err, -ENOTDIR, "%s is not a directory", path);
	else if (code < 0)
		uns_fail_as(err, &why);
	if (code < 0)
		uns_capture_free(c);
	else
		*out = c;
	return code;
}

const struct uns_root *uns_capture_root(const struct uns_capture *c)
{
	return c->root;
}

const char *uns_capture_path(const struct uns_capture *c)
{
	return c->path;
}

const struct uns_stat *uns_capture_top(const struct uns_capture *c)
{
	return &c->top;
}

struct uns_inputs **uns_capture_inputs(struct uns_capture *c)
{
	return &c->inputs;
}

void uns_capture_give_inputs(struct uns_capture *c, struct uns_inputs *inputs)
{
	uns_inputs_put(c->inputs);
	c->inputs = inputs;
}

/* -- listing -- */

static bool is_hidden(const struct uns_capture *c, const char *path)
{
	return c->hidden && uns_path_within(path, c->hidden);
}

static bool has_hidden(const struct uns_capture *c, const char *path)
{
	size_t dir_len = strlen(path);

	return c->hidden && uns_path_within(c->hidden, path) &&
	       dir_len + (dir_len > 0) + strlen(uns_path_name(c->hidden)) == strlen(c->hidden);
}

/* Take the hidden entry out of its directory's listing, which may be others' too. */
static int leave_out_hidden(struct uns_capture *c, struct uns_listing *list, struct uns_err *err)
{
	const char *name = uns_path_name(c->hidden);
	struct uns_entry *own = UNS_NEW_N(&c->arena, struct uns_entry, list->n);
	size_t i, n = 0;

	UNS_TRY_ALLOC(own, err);
	for (i = 0; i < list->n; i++)
		if (strcmp(list->v[i].name, name) != 0)
			own[n++] = list->v[i];
	*list = (struct uns_listing){ own, n };
	return 0;
}

/* List a directory whose descriptor is open. */
static int add_dir(struct uns_capture *c, const struct uns_root *root, const char *path, int fd,
		   const struct uns_stat *stat, struct dir **out, struct uns_err *err)
{
	struct dir *d = UNS_NEW(&c->arena, struct dir);
	char buf[KEY_BYTES];
	const char *key = uns_arena_str(&c->arena, key_of(c, root, path, buf));

	if (!d || !key || !(d->path = uns_arena_str(&c->arena, path)) ||
	    !UNS_ARENA_ROOM(&c->arena, c->dir, c->n_dirs, c->cap_dirs))
		return uns_oom(err);
	d->root = root;
	d->stat = *stat;
	if (!c->lists || (root == c->root && uns_path_within(path, c->path)))
		UNS_TRY(uns_dir_list(root, path, fd, &c->arena, &d->list, err));
	else
		UNS_TRY(uns_list_kept(c->lists, root, path, fd, stat, &d->kept, &d->list, err));
	c->dir[c->n_dirs++] = d; /* from here on, freeing the capture gives the list back */
	if (root == c->root && has_hidden(c, path))
		UNS_TRY(leave_out_hidden(c, &d->list, err));
	UNS_TRY_ALLOC(uns_map_put(&c->by_path, key, d, NULL), err);
	*out = d;
	return 0;
}

static int find_dir(struct uns_capture *c, const struct uns_root *root, const char *path, struct dir **out,
		    struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_stat stat;
	char buf[KEY_BYTES];

	*out = uns_map_get(&c->by_path, key_of(c, root, path, buf));
	if (*out)
		return 0;
	if (c->fd >= 0 && root == c->root && strcmp(path, c->path) == 0) {
		UNS_TRY(uns_dir_open(root, path, c->fd, &fd, err));
		return add_dir(c, root, path, fd, &c->top, out, err);
	}
	if (root == c->root && is_hidden(c, path))
		return uns_fail(err, -ENOENT, "%s: hidden from this examination", path);
	UNS_TRY(uns_root_open_dir(root, path, &fd, &stat, err));
	return add_dir(c, root, path, fd, &stat, out, err);
}

int uns_capture_list_in(struct uns_capture *c, const struct uns_root *root, const char *path,
			const struct uns_listing **out, struct uns_stat *dir, struct uns_err *err)
{
	struct dir *d;

	UNS_TRY(note_fault(c, root, find_dir(c, root, path, &d, err), path));
	*out = &d->list;
	if (dir)
		*dir = d->stat;
	return 0;
}

int uns_capture_list(struct uns_capture *c, const char *path, const struct uns_listing **out, struct uns_err *err)
{
	return uns_capture_list_in(c, c->root, path, out, NULL, err);
}

/* -- stats -- */

static void look_at(struct uns_capture *c, const struct uns_root *root, int fd, const char *dir, const char *name,
		    struct seen *out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	char *path;

	path = uns_path_join(&arena, dir, name);
	out->code = path ? uns_dir_stat(root, fd, name, &out->stat) : -ENOMEM;
	if (out->code == 0 && out->stat.kind == UNS_KIND_LINK)
		out->code = uns_root_stat(root, path, true, &out->stat, NULL);
	note_fault(c, root, out->code, path ? path : dir);
}

static const struct dir *dir_of(const struct uns_capture *c, const struct uns_root *root, const char *path);

/* What is reached through directories below the capture's own. */
static void add_way(const struct uns_capture *c, const struct dir *d, struct uns_stat *stat)
{
	for (; d && strcmp(d->path, c->path) != 0; d = dir_of(c, c->root, d->path))
		uns_access_through(stat, &d->stat);
}

static int fill_dir(struct uns_capture *c, struct dir *d, int fd, struct uns_err *err)
{
	struct seen *seen = UNS_NEW_N(&c->arena, struct seen, d->list.n);
	size_t i;

	UNS_TRY_ALLOC(seen, err);
	for (i = 0; i < d->list.n; i++) {
		look_at(c, c->root, fd, d->path, d->list.v[i].name, &seen[i]);
		if (seen[i].code == 0)
			add_way(c, d, &seen[i].stat);
	}
	d->seen = seen;
	return 0;
}

/* With one descriptor for both, unless its names were asked for before. */
static int list_and_fill(struct uns_capture *c, const char *path, struct dir **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_close_p) int own = -1;
	bool is_top = c->fd >= 0 && strcmp(path, c->path) == 0;
	struct uns_stat stat = c->top;
	int fd = c->fd;

	*out = uns_map_get(&c->by_path, path);
	if (*out && (*out)->seen)
		return 0;
	if (!is_top) {
		UNS_TRY(uns_root_open_dir(c->root, path, &own, &stat, err));
		fd = own;
	} else if (!*out) {
		UNS_TRY(uns_dir_open(c->root, path, c->fd, &own, err));
	}
	if (!*out)
		UNS_TRY(add_dir(c, c->root, path, own, &stat, out, err));
	UNS_TRY(fill_dir(c, *out, fd, err));
	if (is_top) {
		uns_close_p(&c->fd);
		c->fd = -1;
	}
	return 0;
}

static int fill_tree(struct uns_capture *c, const char *path, int depth, struct uns_err *err)
{
	struct dir *d;
	char *child;
	size_t i;

	UNS_TRY(list_and_fill(c, path, &d, err));
	for (i = 0; i < d->list.n && depth > 0; i++) {
		if (d->list.v[i].kind != UNS_KIND_DIR || d->seen[i].code < 0 || d->seen[i].stat.kind != UNS_KIND_DIR)
			continue;
		UNS_TRY_ALLOC(child = uns_path_join(&c->arena, path, d->list.v[i].name), err);
		UNS_TRY(fill_tree(c, child, depth - 1, err));
	}
	return 0;
}

int uns_capture_fill(struct uns_capture *c, int depth, struct uns_err *err)
{
	return fill_tree(c, c->path, depth, err);
}

static bool remember(struct uns_capture *c, const struct uns_root *root, const char *path, const struct seen *seen)
{
	char buf[KEY_BYTES];
	const char *key = uns_arena_str(&c->arena, key_of(c, root, path, buf));
	struct seen *copy = UNS_NEW(&c->arena, struct seen);

	if (!key || !copy)
		return false;
	*copy = *seen;
	return uns_map_put(&c->single, key, copy, NULL);
}

static const struct dir *dir_of(const struct uns_capture *c, const struct uns_root *root, const char *path)
{
	size_t len = (size_t)(uns_path_name(path) - path);
	char parent[PATH_MAX], buf[KEY_BYTES];

	if (!*path || len > sizeof(parent))
		return NULL;
	len -= len > 0; /* its slash */
	memcpy(parent, path, len);
	parent[len] = '\0';
	return uns_map_get(&c->by_path, key_of(c, root, parent, buf));
}

/* Listings are sorted. */
static const struct uns_entry *entry_of(const struct uns_listing *list, const char *name)
{
	size_t i;

	UNS_SEARCH(i, list->n, uns_str_natural(list->v[i].name, name) < 0);
	return i < list->n && strcmp(list->v[i].name, name) == 0 ? &list->v[i] : NULL;
}

bool uns_capture_filled(const struct uns_capture *c, const struct uns_root *root, const char *path, bool names)
{
	const struct dir *parent = root == c->root ? dir_of(c, root, path) : NULL, *own;
	const struct uns_entry *e;

	if (root != c->root || strcmp(path, c->path) == 0)
		return root == c->root;
	if (!parent || !parent->seen || !names)
		return parent && parent->seen;
	own = uns_map_get(&c->by_path, path);
	e = entry_of(&parent->list, uns_path_name(path));
	return (own && own->seen) || !e || (e->kind != UNS_KIND_DIR && e->kind != UNS_KIND_LINK);
}

/* What is known without a look: a path that was asked for before, an entry of a filled directory, or
 * that a listed directory does not have the name. */
static const struct seen *known(const struct uns_capture *c, const struct uns_root *root, const char *path)
{
	static const struct seen absent = { .code = -ENOENT };
	const struct dir *d = dir_of(c, root, path);
	const struct uns_entry *e = d ? entry_of(&d->list, uns_path_name(path)) : NULL;
	char buf[KEY_BYTES];

	if ((root == c->root && is_hidden(c, path)) || (d && !e))
		return &absent;
	if (e && d->seen)
		return &d->seen[e - d->list.v];
	return uns_map_get(&c->single, key_of(c, root, path, buf));
}

void uns_capture_look(struct uns_capture *c, const struct uns_root *root, const char *dir, const char *const *names,
		      size_t n)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_close_p) int fd = uns_root_open_path(root, dir);
	struct seen seen;
	char *path;
	size_t i;

	for (i = 0; fd >= 0 && i < n; i++) {
		path = uns_path_join(&arena, dir, names[i]);
		if (!path || known(c, root, path))
			continue;
		look_at(c, root, fd, dir, names[i], &seen);
		if (!remember(c, root, path, &seen))
			note_fault(c, root, -ENOMEM, path);
	}
}

int uns_capture_stat_in(struct uns_capture *c, const struct uns_root *root, const char *path, struct uns_stat *out,
			struct uns_err *err)
{
	const struct seen *seen = known(c, root, path);
	struct seen live;

	if (!seen) {
		live.code = note_fault(c, root, uns_root_stat(root, path, true, &live.stat, NULL), path);
		if (!remember(c, root, path, &live))
			return note_fault(c, root, uns_oom(err), path);
		seen = &live;
	}
	if (seen->code < 0)
		return uns_root_fail(root, path, seen->code, err);
	*out = seen->stat;
	return 0;
}

int uns_capture_stat(struct uns_capture *c, const char *path, struct uns_stat *out, struct uns_err *err)
{
	return uns_capture_stat_in(c, c->root, path, out, err);
}

int uns_capture_peek(const struct uns_capture *c, const char *below, struct uns_stat *out, struct uns_err *err)
{
	int code = uns_dir_stat(c->root, c->fd, below, out);

	return code < 0 ? uns_root_fail(c->root, c->path, code, err) : 0;
}

/* -- pages -- */

static void forget_pages(const struct uns_capture *c, const char *path, const struct uns_stat *st)
{
	int fd;

	if (st->kind != UNS_KIND_FILE || !uns_written_elsewhere(major(st->id.dev), minor(st->id.dev)) ||
	    uns_root_open_file(c->root, path, &fd, NULL, NULL) < 0)
		return;
	uns_fd_forget_pages(fd, &st->id);
	close(fd);
}

void uns_capture_forget_pages(struct uns_capture *c)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct dir *d;
	const char *path;
	size_t i, k;

	forget_pages(c, c->path, &c->top);
	for (i = 0; i < c->n_dirs; i++) {
		d = c->dir[i];
		for (k = 0; d->seen && k < d->list.n; k++) {
			path = uns_path_join(&arena, d->path, d->list.v[k].name);
			if (path && d->seen[k].code == 0)
				forget_pages(c, path, &d->seen[k].stat);
		}
	}
}
