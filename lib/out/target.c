#include "out/target.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "out/disk.h"

/* Then the rename takes its place. */
static bool is_empty_dir(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir(dir)) != NULL)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (dir)
		closedir(dir);
	return dir && !n;
}

/* t->parent and t->out of what was given. */
static int target_name(struct uns_target *t, const char *out, struct uns_err *err)
{
	char copy[PATH_MAX];
	const char *name;
	size_t n = strlen(out);
	char *slash;

	while (n > 1 && out[n - 1] == '/')
		n--;
	if (!n || n >= sizeof(copy))
		return uns_fail(err, -EINVAL, "the path of the copy is empty or too long");
	memcpy(copy, out, n);
	copy[n] = '\0';
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return uns_fail(err, -EINVAL, "%s: name a directory that does not exist yet", out);
	if (slash)
		*slash = '\0';
	if (!realpath(!slash ? "." : slash == copy ? "/" : copy, t->parent))
		return uns_fail(err, -errno, "%s: its directory: %s", out, strerror(errno));
	if (snprintf(t->out, sizeof(t->out), "%s/%s", t->parent[1] ? t->parent : "", name) >= (int)sizeof(t->out))
		return uns_fail(err, -ENAMETOOLONG, "%s: the path is too long", out);
	return 0;
}

int uns_target_find(struct uns_target *t, const char *out, const char *suffix, const char *root, const char *path,
		    struct uns_err *err)
{
	char source[PATH_MAX];
	struct stat st;

	UNS_TRY(target_name(t, out, err));
	if (snprintf(t->partial, sizeof(t->partial), "%s%s", t->out, suffix) >= (int)sizeof(t->partial) ||
	    snprintf(source, sizeof(source), "%s%s%s", root, *path ? "/" : "", path) >= (int)sizeof(source))
		return uns_fail(err, -ENAMETOOLONG, "%s: the path is too long", out);
	if (uns_path_within(t->out, source))
		return uns_fail(err, -EINVAL, "%s is inside %s, which is never written to: name a directory elsewhere",
				out, source);
	/* A directory cannot be renamed to where a link is. */
	if (lstat(t->out, &st) == 0 && S_ISLNK(st.st_mode))
		return uns_fail(err, -EEXIST, "%s is a link: name a directory that does not exist yet", out);
	if (faccessat(AT_FDCWD, t->out, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && !is_empty_dir(t->out))
		return uns_fail(err, -EEXIST, "%s exists and is not an empty directory", out);
	return 0;
}

int uns_target_finish(const struct uns_target *t, mode_t mode, struct uns_err *err)
{
	if (chmod(t->partial, ((mode & 0777) | S_IRWXU) & ~uns_umask()) < 0 || rename(t->partial, t->out) < 0)
		return uns_fail_errno(t->out, err);
	return uns_sync_dir(t->parent, err);
}
