/* See output_dir.h. Which mount a directory lies on is found by its device number in
 * /proc/self/mountinfo, which needs no path to be compared. */
#include "check/output_dir.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* "36 35 98:0 /root /mnt rw,noatime master:1 - fuse.unshard source options" */
static bool line_is_unshard(const char *line, dev_t dev)
{
	unsigned major_no, minor_no;
	const char *type = strstr(line, " - ");

	return type && sscanf(line, "%*d %*d %u:%u", &major_no, &minor_no) == 2 &&
	       major_no == major(dev) && minor_no == minor(dev) &&
	       strncmp(type + 3, "fuse.unshard ", strlen("fuse.unshard ")) == 0;
}

static bool on_unshard(const char *dir)
{
	UNS_CLEANUP(close_file) FILE *mounts = fopen("/proc/self/mountinfo", "re");
	UNS_CLEANUP(uns_free_p) char *line = NULL;
	struct stat st;
	size_t cap = 0;

	if (!mounts || stat(dir, &st) < 0)
		return false;
	while (getline(&line, &cap, mounts) > 0)
		if (line_is_unshard(line, st.st_dev))
			return true;
	return false;
}

/* The path itself, or the nearest directory above it that is there. Cuts `path`. */
static const char *nearest(char *path, struct stat *st)
{
	char *slash;

	while (stat(path, st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return path;
		slash = strrchr(path, '/');
		if (!slash)
			return stat(".", st) == 0 ? "." : path;
		if (slash == path)
			return stat("/", st) == 0 ? "/" : path;
		*slash = '\0';
	}
	return path;
}

static const char *say(struct uns_arena *arena, const char *path, const char *dir, const char *why)
{
	if (strcmp(path, dir) == 0)
		return uns_arena_printf(arena, "%s %s", path, why);
	return uns_arena_printf(arena, "%s would be made in %s, which %s", path, dir, why);
}

int output_dir_check(const char *path, struct uns_arena *arena, const char **why,
		     struct uns_err *err)
{
	char *copy = uns_arena_str(arena, path);
	const char *dir, *reason = NULL;
	struct stat st = { 0 };

	if (!copy)
		return uns_oom(err);
	dir = nearest(copy, &st);
	if (on_unshard(dir))
		reason = "is on an unshard mount, which is read-only; write to a directory outside the mount, and "
			 "only load from it";
	else if (st.st_mode && !S_ISDIR(st.st_mode))
		reason = "is a file; name a directory";
	else if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) < 0)
		reason = uns_arena_printf(arena,
					  "cannot be written: %s; name another directory, or "
					  "change this one's permissions",
					  strerror(errno));
	else
		return 0;
	*why = reason ? say(arena, path, dir, reason) : NULL;
	return *why ? 0 : uns_oom(err);
}
