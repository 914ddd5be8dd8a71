#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void fs_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if ((len < 2) || (*path != '/' && *path != '@') || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@')
		to.sun_path[0] = '\0'; /* a name that is in no directory: unix(7) */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}
