#include "files.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256];

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	return at->level ? remove(path) : 0;
}

void files_clear(void)
{
	nftw(files_dir(), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_dir(void)
{
	files_clear();
	rmdir(dir);
}

const char *files_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (*dir)
		return dir;
	snprintf(dir, sizeof(dir), "%s/unshard_fuzz_XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		perror(dir);
		_exit(2);
	}
	atexit(remove_dir);
	return dir;
}

static void path_of(const char *name, char *out, size_t room)
{
	snprintf(out, room, "%s/%s", files_dir(), name);
}

static int open_new(char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
	int fd = open(path, flags, 0600);
	char *slash;

	if (fd >= 0)
		return fd;
	for (slash = strchr(path + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	return open(path, flags, 0600);
}

void files_put(const char *name, struct uns_span bytes)
{
	size_t len = uns_span_left(&bytes);
	char path[4096];
	int fd;

	path_of(name, path, sizeof(path));
	fd = open_new(path);
	if (fd < 0 || write(fd, bytes.p, len) != (ssize_t)len) {
		perror(path);
		_exit(2);
	}
	close(fd);
}

void files_remove(const char *name)
{
	char path[4096];

	path_of(name, path, sizeof(path));
	unlink(path);
}

/* -- a catalog -- */

void files_catalog_open(struct files_catalog *out)
{
	struct uns_err err = { 0 };

	if (uns_root_open(files_dir(), NULL, &out->root, &err) < 0 || uns_catalog_new("", &out->cat, &err) < 0)
		_exit(2);
}

void files_catalog_done(struct files_catalog *c)
{
	struct uns_err err = { 0 };

	files_expect(uns_catalog_seal(c->cat, &err), &err);
	uns_catalog_free(c->cat);
	uns_root_close(c->root);
}

void files_expect(int rc, const struct uns_err *err)
{
	if (rc > 0 || (rc < 0 && (err->code >= 0 || !*err->text)))
		abort();
}
