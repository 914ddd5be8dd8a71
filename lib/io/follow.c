/* The path is walked component by component. `done` is what was walked below the current base; it
 * holds no link and no "..". `todo` is the rest; a link in it is replaced by its target. Each step
 * opens a directory with O_NOFOLLOW, so a directory that is swapped for a link meanwhile ends the
 * walk and cannot lead it elsewhere. */
#include "io/follow.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { MAX_LINKS = 40, STEP_FLAGS = O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC };

struct walk {
	const struct uns_base *base;
	size_t n_bases, at; /* base[at] is the current one */
	int fd;             /* of base[at]/done */
	unsigned n_links;
	char done[PATH_MAX], todo[PATH_MAX];
};

static void close_walk(struct walk *w)
{
	uns_close_p(&w->fd);
}

static int enter(struct walk *w, const char *name)
{
	int fd = openat(w->fd, name, STEP_FLAGS);

	if (fd < 0)
		return -errno;
	close(w->fd);
	w->fd = fd;
	return 0;
}

static int go_to_base(struct walk *w, size_t at)
{
	int fd = openat(w->base[at].fd, ".", STEP_FLAGS);

	if (fd < 0)
		return -errno;
	uns_close_p(&w->fd);
	w->fd = fd;
	w->at = at;
	w->done[0] = '\0';
	return 0;
}

/* Copy the first component of *path to name, which holds NAME_MAX + 1 bytes; move *path behind it
 * and the slashes that follow. */
static int take_component(const char **path, char *name)
{
	size_t n = strcspn(*path, "/");

	if (n > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, *path, n);
	name[n] = '\0';
	*path += n + strspn(*path + n, "/");
	return 0;
}

/* `path` as seen from `dir`, or NULL when it is not below it. */
static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (strncmp(path, dir, n) != 0 || (path[n] != '/' && path[n] != '\0'))
		return NULL;
	return path + n + strspn(path + n, "/");
}

/* Continue at the absolute path `path` (a buffer of the caller), in the base that it lies in. */
static int jump(struct walk *w, const char *path, const char *link, struct uns_err *err)
{
	const char *tail = NULL;
	size_t i;

	for (i = 0; i < w->n_bases; i++) {
		tail = below(path, w->base[i].given);
		if (!tail)
			tail = below(path, w->base[i].real);
		if (tail)
			break;
	}
	if (!tail)
		return uns_fail(err, -EXDEV,
				"%s/%s: the link leads to %s, which is outside SOURCE; allow it "
				"with -o follow=DIR, where DIR holds the target",
				w->base[0].given, link, path);
	memcpy(w->todo, tail, strlen(tail) + 1); /* shorter than PATH_MAX, as path is */
	return go_to_base(w, i);
}

static int step_up(struct walk *w, const char *rest, const char *rel, struct uns_err *err)
{
	char again[PATH_MAX], name[NAME_MAX + 1], path[PATH_MAX];
	const char *p = again;
	char *slash;
	int n;

	if (!w->done[0]) { /* ".." leads out of the base */
		slash = strrchr(w->base[w->at].real, '/');
		n = snprintf(path, sizeof(path), "%.*s/%s", slash ? (int)(slash - w->base[w->at].real) : 0,
			     w->base[w->at].real, rest);
		return n < (int)sizeof(path) ? jump(w, path, rel, err) : -ENAMETOOLONG;
	}
	slash = strrchr(w->done, '/');
	*(slash ? slash : w->done) = '\0';
	memcpy(again, w->done, sizeof(again));
	UNS_TRY(go_to_base(w, w->at));
	memcpy(w->done, again, sizeof(again));
	while (*p) {
		UNS_TRY(take_component(&p, name));
		UNS_TRY(enter(w, name));
	}
	memmove(w->todo, rest, strlen(rest) + 1);
	return 0;
}

static int step_link(struct walk *w, const char *name, const char *rest, const char *rel, struct uns_err *err)
{
	char target[PATH_MAX], path[PATH_MAX];
	ssize_t len = readlinkat(w->fd, name, target, sizeof(target) - 1);
	int n;

	if (len < 0)
		return -errno;
	if (++w->n_links > MAX_LINKS)
		return -ELOOP;
	target[len] = '\0';
	n = snprintf(path, sizeof(path), "%s%s%s", target, *rest ? "/" : "", rest);
	if (n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (path[0] == '/')
		return jump(w, path, rel, err);
	memcpy(w->todo, path, (size_t)n + 1);
	return 0;
}

static int step_down(struct walk *w, const char *name, const char *rest)
{
	size_t n = strlen(w->done), m = strlen(name);

	if (n + m + 2 > sizeof(w->done))
		return -ENAMETOOLONG;
	UNS_TRY(enter(w, name));
	if (n)
		w->done[n++] = '/';
	memcpy(w->done + n, name, m + 1);
	memmove(w->todo, rest, strlen(rest) + 1);
	return 0;
}

static int is_link(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISLNK(st.st_mode);
}

/* One component. Returns 1 and the descriptor when the last one was opened. */
static int step(struct walk *w, const char *rel, int flags, int *fd, struct uns_err *err)
{
	char name[NAME_MAX + 1];
	const char *rest = w->todo + strspn(w->todo, "/");
	int link;

	UNS_TRY(take_component(&rest, name));
	if (strcmp(name, "..") == 0)
		return step_up(w, rest, rel, err);
	if (strcmp(name, ".") == 0 || !*name) {
		if (!*rest) {
			*fd = openat(w->fd, ".", flags | O_NOFOLLOW | O_CLOEXEC);
			return *fd < 0 ? -errno : 1;
		}
		memmove(w->todo, rest, strlen(rest) + 1);
		return 0;
	}
	link = is_link(w->fd, name);
	if (link < 0)
		return link;
	if (link && (*rest || !(flags & O_NOFOLLOW)))
		return step_link(w, name, rest, rel, err);
	if (*rest)
		return step_down(w, name, rest);
	*fd = openat(w->fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
	return *fd < 0 ? -errno : 1;
}

int uns_follow_open(const struct uns_base *base, size_t n_bases, const char *rel, int flags, struct uns_err *err)
{
	UNS_CLEANUP(close_walk) struct walk w = { .base = base, .n_bases = n_bases, .fd = -1 };
	int fd = -1, rc;

	if (strlen(rel) >= sizeof(w.todo))
		return uns_fail(err, -ENAMETOOLONG, "%s/%s: the name is too long", base->given, rel);
	memcpy(w.todo, rel, strlen(rel) + 1);
	rc = go_to_base(&w, 0);
	while (rc == 0)
		rc = step(&w, rel, flags, &fd, err);
	return rc < 0 ? rc : fd;
}
