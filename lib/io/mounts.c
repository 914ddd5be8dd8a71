#include "io/mounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
