#include "io/memory_left.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* MOST_GROUPS: of the text that names the process's groups, a line for each hierarchy. */
enum { MOST_PATH = 1024, MOST_GROUPS = 8 << 10 };

/* Where a version of control groups has the figures of one group. */
struct version {
	const char *controller, *mount; /* controller: in /proc/self/cgroup; "" = the one hierarchy of version 2 */
	const char *most, *used;
	const char *inactive, *active; /* pages of files, in memory.stat: of its groups as well */
};

static const struct version versions[] = {
	{ "", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file" },
	{ "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
	  "total_active_file" },
};

/* The number behind `name`, or alone in the file if that is ""; false = there is none, as of "max". */
static bool number_of(const char *path, const char *name, uint64_t *out)
{
	FILE *file = fopen(path, "re");
	const size_t len = strlen(name);
	char line[256], *from, *end;
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		from = line + len;
		if (strncmp(line, name, len) != 0 || (len && !strchr(": ", *from)))
			continue;
		from += strspn(from, ": ");
		*out = strtoull(from, &end, 10);
		found = end > from;
	}
	if (file)
		fclose(file);
	return found;
}

static bool group_number(const char *dir, const char *file, const char *name, uint64_t *out)
{
	char path[MOST_PATH];

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) < sizeof(path) && number_of(path, name, out);
}

static uint64_t left_in_group(const struct version *v, const char *dir)
{
	uint64_t most, used, inactive = 0, active = 0;

	if (!group_number(dir, v->most, "", &most) || !group_number(dir, v->used, "", &used))
		return UINT64_MAX;
	group_number(dir, "memory.stat", v->inactive, &inactive);
	group_number(dir, "memory.stat", v->active, &active);
	used -= uns_u64_min(used, inactive + active);
	return most - uns_u64_min(most, used);
}

/* Of the group at `path` and of those that it is in. In a container the hierarchy may begin at its own group, whatever
 * the path: there that one is the first that exists. */
static uint64_t left_in_groups(const struct version *v, const char *root, const char *path)
{
	uint64_t left = UINT64_MAX;
	char dir[MOST_PATH];
	size_t base;

	base = (size_t)snprintf(dir, sizeof(dir), "%s%s", root, v->mount);
	if (base >= sizeof(dir) || (size_t)snprintf(dir + base, sizeof(dir) - base, "%s", path) >= sizeof(dir) - base)
		return left;
	for (;;) {
		left = uns_u64_min(left, left_in_group(v, dir));
		if (!strchr(dir + base, '/'))
			return left;
		*strrchr(dir + base, '/') = '\0';
	}
}

/* "4:memory:/a/b", "5:cpu,memory:/a", "0::/a/b" */
static const char *path_in_line(char *line, const struct version *v)
{
	char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL, *name, *rest = NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	if (!names[1])
		return *v->controller ? NULL : path;
	for (name = strtok_r(names + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
		if (strcmp(name, v->controller) == 0)
			return path;
	return NULL;
}

static uint64_t left_by_version(const struct version *v, const char *root, const char *groups)
{
	uint64_t left = UINT64_MAX;
	char line[MOST_PATH];
	const char *path;
	size_t len;

	for (; *groups; groups += len + (groups[len] == '\n')) {
		len = strcspn(groups, "\n");
		if ((size_t)snprintf(line, sizeof(line), "%.*s", (int)len, groups) < sizeof(line) &&
		    (path = path_in_line(line, v)))
			left = uns_u64_min(left, left_in_groups(v, root, path));
	}
	return left;
}

/* The file's text, as much as has room; "" if it cannot be read. */
static void text_of(const char *root, const char *path, char *out, size_t size)
{
	char name[MOST_PATH];
	size_t len = 0;
	FILE *file;

	snprintf(name, sizeof(name), "%s%s", root, path);
	file = fopen(name, "re");
	if (file) {
		len = fread(out, 1, size - 1, file);
		fclose(file);
	}
	out[len] = '\0';
}

uint64_t uns_memory_left(const char *root)
{
	char name[MOST_PATH], groups[MOST_GROUPS];
	uint64_t kib, left = UINT64_MAX;
	size_t i;

	snprintf(name, sizeof(name), "%s/proc/meminfo", root);
	if (number_of(name, "MemAvailable", &kib))
		left = kib * 1024;
	text_of(root, "/proc/self/cgroup", groups, sizeof(groups));
	for (i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		left = uns_u64_min(left, left_by_version(&versions[i], root, groups));
	return left;
}
