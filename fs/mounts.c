/* Questions to /proc/self/mountinfo. All but fs_is_stale leave the mounted file system alone: a mount whose
 * daemon is this process, is dead, or hangs must not block the answer. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fail.h"
#include "fs.h"

/* stat could be answered by what the kernel remembers, also when no process serves the mount any more. */
bool fs_is_stale(const char *path)
{
	struct statx st;

	return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_TYPE, &st) < 0 && errno == ENOTCONN;
}

/* Spaces and the like appear as \040; in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s)
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	*to = '\0';
}

static void copy_field(char *to, size_t size, char *field)
{
	unescape(field);
	snprintf(to, size, "%s", field);
}

/* 36 35 98:0 /root /mount/point rw,noatime master:1 - type source options */
static bool parse_line(char *line, struct fs_mount *out)
{
	char *rest = NULL, *field[5], *type, *source, *dash = strstr(line, " - ");
	unsigned maj, min;
	int i;

	if (!dash)
		return false;
	*dash = '\0';
	for (i = 0; i < 5; i++)
		if (!(field[i] = strtok_r(i ? NULL : line, " ", &rest)))
			return false;
	type = strtok_r(dash + 3, " \n", &rest);
	source = type ? strtok_r(NULL, " \n", &rest) : NULL;
	if (!source || sscanf(field[2], "%u:%u", &maj, &min) != 2)
		return false;
	out->dev = makedev(maj, min);
	copy_field(out->path, sizeof(out->path), field[4]);
	copy_field(out->type, sizeof(out->type), type);
	copy_field(out->source, sizeof(out->source), source);
	return true;
}

static void visit_all(bool (*visit)(void *ctx, const struct fs_mount *mount), void *ctx)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	struct fs_mount mount;
	char *line = NULL;
	size_t cap = 0;
	bool wanted = true;

	if (!table)
		return;
	while (wanted && getline(&line, &cap, table) >= 0)
		if (parse_line(line, &mount))
			wanted = visit(ctx, &mount);
	free(line);
	fclose(table);
}

struct wanted_path {
	const char *path;
	struct fs_mount *out;
	bool found;
};

static bool is_at_path(void *ctx, const struct fs_mount *mount)
{
	struct wanted_path *w = ctx;

	if (strcmp(mount->path, w->path) == 0) { /* the last one is on top */
		*w->out = *mount;
		w->found = true;
	}
	return true;
}

bool fs_mount_find(const char *path, struct fs_mount *out)
{
	struct wanted_path w = { path, out, false };

	visit_all(is_at_path, &w);
	return w.found;
}

struct wanted_device {
	uint64_t dev;
	struct fs_mount *out;
	bool found;
};

static bool is_of_device(void *ctx, const struct fs_mount *mount)
{
	struct wanted_device *w = ctx;

	w->found = mount->dev == w->dev;
	if (w->found)
		*w->out = *mount;
	return !w->found;
}

bool fs_mount_of(uint64_t dev, struct fs_mount *out)
{
	struct wanted_device w = { dev, out, false };

	visit_all(is_of_device, &w);
	return w.found;
}

struct of_ours {
	void (*visit)(void *ctx, const struct fs_mount *mount);
	void *ctx;
};

static bool is_ours(void *ctx, const struct fs_mount *mount)
{
	const struct of_ours *o = ctx;

	if (strcmp(mount->type, "fuse.unshard") == 0)
		o->visit(o->ctx, mount);
	return true;
}

void fs_mounts_visit(void (*visit)(void *ctx, const struct fs_mount *mount), void *ctx)
{
	struct of_ours o = { visit, ctx };

	visit_all(is_ours, &o);
}

bool fs_mount_above(const char *path, struct fs_mount *out, const char **inside)
{
	char up[PATH_MAX];
	size_t n = strlen(path);

	for (; n > 0 && n < sizeof(up); n -= n > 0) {
		if (path[n] && path[n] != '/')
			continue;
		snprintf(up, sizeof(up), "%.*s", (int)n, path);
		if (!fs_mount_find(up, out))
			continue;
		*inside = path + n + strspn(path + n, "/");
		return strcmp(out->type, "fuse.unshard") == 0;
	}
	return false;
}

/* Where the last component starts; NULL when it does not name an entry of a directory. */
static char *last_component(char *path)
{
	size_t len = strlen(path);
	char *slash, *name;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	return *name && strcmp(name, ".") && strcmp(name, "..") ? name : NULL;
}

int fs_mount_path(const char *path, char out[4096], struct unshard_error *err)
{
	char copy[PATH_MAX], parent[PATH_MAX] = ".", real[PATH_MAX], *name;

	if (strlen(path) >= sizeof(copy))
		return fs_fail(err, -ENAMETOOLONG, "%.60s...: the path is too long", path);
	strcpy(copy, path);
	name = last_component(copy);
	if (!name) {
		if (!realpath(path, real))
			return fs_fail(err, -errno, "%s: %s", path, strerror(errno));
		strcpy(out, real);
		return 0;
	}
	if (name != copy)
		snprintf(parent, sizeof(parent), "%.*s", (int)(name - copy), copy);
	if (!realpath(parent, real))
		return fs_fail(err, -errno, "%s: %s", parent, strerror(errno));
	if (snprintf(out, 4096, "%s/%s", strcmp(real, "/") ? real : "", name) >= 4096)
		return fs_fail(err, -ENAMETOOLONG, "%.60s...: the path is too long", path);
	return 0;
}
