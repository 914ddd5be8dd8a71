#include "check/output_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/mounts.h"

static bool on_unshard(const char *dir)
{
	char type[64];
	struct stat st;

	return stat(dir, &st) == 0 && uns_mount_type(major(st.st_dev), minor(st.st_dev), type, sizeof(type)) &&
	       strcmp(type, "fuse.unshard") == 0;
}

/* The path itself, or the nearest directory above it that exists. Cuts `path`. */
static const char *nearest_directory(char *path, struct stat *st)
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

static const char *output_dir_sentence(struct uns_arena *arena, const char *path, const char *dir, const char *why)
{
	if (strcmp(path, dir) == 0)
		return uns_arena_printf(arena, "%s %s", path, why);
	return uns_arena_printf(arena, "%s would be made in %s, which %s", path, dir, why);
}

int output_dir_check(const char *path, struct uns_arena *arena, const char **why, struct uns_err *err)
{
	char *copy = uns_arena_str(arena, path);
	const char *dir, *reason = NULL;
	struct stat st = { 0 };

	UNS_TRY_ALLOC(copy, err);
	dir = nearest_directory(copy, &st);
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
	*why = reason ? output_dir_sentence(arena, path, dir, reason) : NULL;
	return *why ? 0 : uns_oom(err);
}
