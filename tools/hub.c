/* See hub.h. */
#include "hub.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unshard.h"

#define PREFIX "models--"

bool hub_is_name(const char *name)
{
	const char *slash = strchr(name, '/');

	return slash && slash > name && slash[1] && !strchr(slash + 1, '/') && *name != '.' && *name != '~';
}

__attribute__((format(printf, 2, 3))) static bool put(char out[PATH_MAX], const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(out, PATH_MAX, fmt, ap);
	va_end(ap);
	return n > 0 && n < PATH_MAX;
}

bool hub_cache(char out[PATH_MAX])
{
	char *path = unshard_hub_cache();
	const bool fits = path && put(out, "%s", path);

	unshard_free(path);
	return fits;
}

/* What refs/main of the model names. */
static bool main_snapshot(const char *model, char out[PATH_MAX])
{
	char ref[PATH_MAX], hash[128];
	FILE *f;
	bool got;

	if (!put(ref, "%s/refs/main", model) || !(f = fopen(ref, "re")))
		return false;
	got = fgets(hash, sizeof(hash), f) != NULL;
	fclose(f);
	if (!got)
		return false;
	hash[strcspn(hash, "\n")] = '\0';
	return !strchr(hash, '/') && put(out, "%s/snapshots/%s", model, hash) && access(out, R_OK | X_OK) == 0;
}

/* A download of a revision by its hash writes no ref. */
static bool newest_snapshot(const char *model, char out[PATH_MAX])
{
	char all[PATH_MAX], one[PATH_MAX];
	const struct dirent *e;
	time_t newest = 0;
	struct stat st;
	DIR *dir;

	if (!put(all, "%s/snapshots", model) || !(dir = opendir(all)))
		return false;
	*out = '\0';
	while ((e = readdir(dir))) {
		if (*e->d_name == '.' || !put(one, "%s/%s", all, e->d_name) || stat(one, &st) < 0 ||
		    !S_ISDIR(st.st_mode) || (*out && st.st_mtime <= newest))
			continue;
		newest = st.st_mtime;
		strcpy(out, one);
	}
	closedir(dir);
	return *out;
}

bool hub_snapshot(const char *name, char out[PATH_MAX])
{
	char cache[PATH_MAX], model[PATH_MAX];
	const char *slash = strchr(name, '/');

	return hub_is_name(name) && hub_cache(cache) &&
	       put(model, "%s/" PREFIX "%.*s--%s", cache, (int)(slash - name), name, slash + 1) &&
	       (main_snapshot(model, out) || newest_snapshot(model, out));
}

void hub_visit(void (*visit)(void *ctx, const char *name), void *ctx)
{
	char cache[PATH_MAX], name[PATH_MAX], *dashes;
	const struct dirent *e;
	DIR *dir;

	if (!hub_cache(cache) || !(dir = opendir(cache)))
		return;
	while ((e = readdir(dir))) {
		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 || !put(name, "%s", e->d_name + strlen(PREFIX)))
			continue;
		dashes = strstr(name, "--");
		if (!dashes)
			continue;
		*dashes = '/';
		memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
		visit(ctx, name);
	}
	closedir(dir);
}
