#include "io/mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/path.h"

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

struct mount {
	unsigned dev_major, dev_minor;
	char *point, *type, *source; /* in the line that was read */
};

/* "36 35 0:42 /root /mount/point rw,noatime master:1 - fuse.rclone source options". Lines of another form are passed
 * over. */
static bool mount_next(FILE *table, char **line, size_t *cap, struct mount *out)
{
	int point = 0, end = 0;
	char *dash;

	while (table && getline(line, cap, table) >= 0) {
		dash = strstr(*line, " - ");
		if (!dash ||
		    sscanf(*line, "%*d %*d %u:%u %*s %n%*s%n", &out->dev_major, &out->dev_minor, &point, &end) != 2 ||
		    !end)
			continue;
		out->point = *line + point;
		(*line)[end] = '\0';
		unescape(out->point);
		out->type = dash + 3;
		out->source = out->type + strcspn(out->type, " \n");
		out->source += *out->source == ' ';
		out->type[strcspn(out->type, " \n")] = '\0';
		out->source[strcspn(out->source, " \n")] = '\0';
		return true;
	}
	free(*line);
	if (table)
		fclose(table);
	return false;
}

/* The mount's type, and with_source where it comes from: "ext4 /dev/vda". */
static bool mount_describe(unsigned dev_major, unsigned dev_minor, bool with_source, char *out, size_t size)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	struct mount m;
	char *line = NULL;
	bool found = false;
	size_t cap = 0;

	while (mount_next(table, &line, &cap, &m)) {
		if (found || m.dev_major != dev_major || m.dev_minor != dev_minor)
			continue;
		snprintf(out, size, "%s%s%s", m.type, with_source ? " " : "", with_source ? m.source : "");
		found = true;
	}
	return found;
}

bool uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size)
{
	return mount_describe(dev_major, dev_minor, false, type, size);
}

bool uns_mount_in_memory(unsigned dev_major, unsigned dev_minor)
{
	char type[16];

	return uns_mount_type(dev_major, dev_minor, type, sizeof(type)) &&
	       (strcmp(type, "tmpfs") == 0 || strcmp(type, "ramfs") == 0);
}

bool uns_mount_name(unsigned dev_major, unsigned dev_minor, char *name, size_t size)
{
	return mount_describe(dev_major, dev_minor, true, name, size);
}

int uns_mounts_below(const char *real, const char *type, struct uns_arena *arena, const char *const **out, size_t *n,
		     struct uns_err *err)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	size_t cap_line = 0, cap = 0, len = strlen(real);
	const char **v = NULL;
	char *line = NULL;
	struct mount m;
	int code = 0;

	*n = 0;
	while (mount_next(table, &line, &cap_line, &m)) {
		if (code < 0 || strcmp(m.type, type) != 0 || !uns_path_within(m.point, real) || strlen(m.point) == len)
			continue;
		if (!UNS_ARENA_ROOM(arena, v, *n, cap) ||
		    !(v[*n] = uns_arena_str(arena, m.point + len + (len > 0 && real[len - 1] != '/'))))
			code = uns_oom(err);
		else
			++*n;
	}
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
