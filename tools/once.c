/* An empty file for each sentence, in a directory that is gone after a restart: $XDG_RUNTIME_DIR, else /tmp. */
#include "once.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* FNV-1a */
static uint64_t hash(const char *text)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return h;
}

bool once(const char *sentence)
{
	const char *directory = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/unshard-%u-%016" PRIx64, directory && *directory == '/' ? directory : "/tmp",
		 (unsigned)geteuid(), hash(sentence));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		close(fd);
		return true;
	}
	/* Another user cannot silence it. */
	return errno != EEXIST || lstat(path, &st) < 0 || st.st_uid != geteuid();
}
