/* The file is read by a child: a read that hangs hangs there. */
#include "mounted.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWERS_WITHIN_MS = 2000, LONGEST = 1 << 20 };

static void copy_to(const char *path, int to)
{
	char part[4096];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && (n = read(fd, part, sizeof(part))) > 0)
		if (write(to, part, (size_t)n) != n)
			break;
	_exit(0);
}

/* -> how much came; the rest is lost if it stops coming. */
static size_t collect(int from, char *text)
{
	struct pollfd p = { .fd = from, .events = POLLIN };
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && len + 1 < LONGEST && poll(&p, 1, ANSWERS_WITHIN_MS) == 1) {
		n = read(from, text + len, LONGEST - 1 - len);
		len += n > 0 ? (size_t)n : 0;
	}
	text[len] = '\0';
	return len;
}

cJSON *mounted_json(const char *mountpoint, const char *name)
{
	char path[4400], *text = malloc(LONGEST);
	cJSON *json = NULL;
	int ends[2];
	pid_t child;

	snprintf(path, sizeof(path), "%s/.unshard/%s", mountpoint, name);
	if (!text || pipe2(ends, O_CLOEXEC) < 0) {
		free(text);
		return NULL;
	}
	child = fork();
	if (child == 0)
		copy_to(path, ends[1]);
	close(ends[1]);
	if (child > 0 && collect(ends[0], text))
		json = cJSON_Parse(text);
	close(ends[0]);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, json ? 0 : WNOHANG);
	}
	free(text);
	return json;
}

double mounted_number(const cJSON *stats, const char *key)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(stats, key);

	return cJSON_IsNumber(n) ? n->valuedouble : 0;
}
