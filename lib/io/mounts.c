#include "io/mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

/* "36 35 0:42 /root /mount/point rw,noatime master:1 - fuse.rclone source options" */
bool uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	unsigned is_major, is_minor;
	const char *dash;
	char *line = NULL;
	bool found = false;
	size_t cap = 0;

	while (table && !found && getline(&line, &cap, table) >= 0) {
		dash = strstr(line, " - ");
		if (!dash || sscanf(line, "%*d %*d %u:%u", &is_major, &is_minor) != 2 || is_major != dev_major ||
		    is_minor != dev_minor)
			continue;
		snprintf(type, size, "%.*s", (int)strcspn(dash + 3, " \n"), dash + 3);
		found = true;
	}
	free(line);
	if (table)
		fclose(table);
	return found;
}

/* Spaces and the like appear as \040; in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* The mount point of a line whose file system is of this type, cut out of the line; else NULL. */
static char *mount_point_of(char *line, const char *type)
{
	char *dash = strstr(line, " - "), *at = line, *end;
	int i;

	if (!dash || strncmp(dash + 3, type, strlen(type)) != 0 || dash[3 + strlen(type)] != ' ')
		return NULL;
	for (i = 0; i < 4 && at; i++)
		at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
	end = at ? strchr(at, ' ') : NULL;
	if (!end)
		return NULL;
	*end = '\0';
	unescape(at);
	return at;
}

int uns_mounts_below(const char *real, const char *type, struct uns_arena *arena, const char *const **out, size_t *n,
		     struct uns_err *err)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	size_t cap_line = 0, cap = 0, len = strlen(real);
	const char **v = NULL, *at;
	char *line = NULL;
	int code = 0;

	*out = NULL;
	*n = 0;
	while (table && code == 0 && getline(&line, &cap_line, table) >= 0) {
		at = mount_point_of(line, type);
		if (!at || !uns_path_within(at, real) || strlen(at) == len)
			continue;
		if (!UNS_ARENA_ROOM(arena, v, *n, cap) ||
		    !(v[*n] = uns_arena_str(arena, at + len + (len > 0 && real[len - 1] != '/'))))
			code = uns_oom(err);
		else
			++*n;
	}
	free(line);
	if (table)
		fclose(table);
	*out = v;
	return code;
}

bool uns_is_local(const char *path)
{
	static const unsigned long magic[] = {
		0xEF53,     /* ext2, 3, 4 */
		0x58465342, /* XFS */
		0x9123683E, /* btrfs */
		0x01021994, /* tmpfs */
		0x794c7630, /* overlayfs */
		0x2fc12fc1, /* ZFS */
		0xF2F52010, /* F2FS */
		0xca451a4e, /* bcachefs */
	};
	struct statfs fs;
	size_t i;

	if (statfs(path, &fs) < 0)
		return false;
	for (i = 0; i < sizeof(magic) / sizeof(*magic); i++)
		if ((unsigned long)fs.f_type == magic[i])
			return true;
	return false;
}
