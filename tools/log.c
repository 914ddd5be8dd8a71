/* One write for each line, so that threads and processes may share a file. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

enum { N_LEVELS = 4 };

static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER; /* of every log's own */

/* A link of another user could lead into any file; those of root (/dev/stderr) and one's own are meant. */
static bool may_follow(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid());
}

/* A pipe would hold up the thread that writes a line. */
static int open_file(const char *path)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int fd = open(path, flags | O_NOFOLLOW, 0640);
	struct stat st;

	if (fd < 0 && errno == ELOOP && may_follow(path))
		fd = open(path, flags, 0640);
	if (fd < 0)
		return errno == ENXIO ? -EINVAL : -errno; /* a pipe without a reader */
	if (fstat(fd, &st) == 0 && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
		return fd;
	close(fd);
	return -EINVAL;
}

/* -- the default file -- */

static bool state_file(char out[4096])
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const bool is_set = state && *state == '/';
	char *slash;
	int n;

	if (!is_set && !(home && *home == '/'))
		return false;
	n = snprintf(out, 4096, "%s%s/unshard/mount.log", is_set ? state : home, is_set ? "" : "/.local/state");
	if (n < 0 || n >= 4096)
		return false;
	for (slash = out; (slash = strchr(slash + 1, '/'));) { /* as the metadata store makes its directory */
		*slash = '\0';
		mkdir(out, 0700);
		*slash = '/';
	}
	return true;
}

/* Without a syslog. Where it cannot be written, lines go nowhere, as syslog(3) has it. */
static void open_default(struct log *log)
{
	if (access("/dev/log", F_OK) == 0 || !state_file(log->file))
		return;
	log->fd = open_file(log->file);
	log->with_time = log->fd >= 0;
	if (log->fd < 0)
		*log->file = '\0';
}

enum { MOST_BYTES = 8 << 20 };

/* Several mounts write to it: the first that finds it too long moves it away, if it is still the same file. A mount
 * that may not (its store is elsewhere, so it can write nowhere else) empties it. */
static void keep_small(struct log *log)
{
	struct stat own, named;
	char old[4100];
	int fd;

	if (fstat(log->fd, &own) < 0 || own.st_size < MOST_BYTES)
		return;
	snprintf(old, sizeof(old), "%s.1", log->file);
	if (stat(log->file, &named) == 0 && named.st_ino == own.st_ino && rename(log->file, old) < 0 &&
	    ftruncate(log->fd, 0) == 0)
		return;
	fd = open_file(log->file);
	if (fd < 0)
		return;
	dup3(fd, log->fd, O_CLOEXEC);
	close(fd);
}

int log_open(struct log *log, const char *path, bool foreground, struct unshard_error *err)
{
	*log = (struct log){ .fd = foreground ? STDERR_FILENO : -1, .with_time = path != NULL };
	if (!path && !foreground)
		open_default(log);
	if (path) {
		log->fd = open_file(path);
		if (log->fd < 0) {
			err->code = log->fd;
			snprintf(err->text, sizeof(err->text), "log=%.300s: %s", path,
				 log->fd == -ELOOP || log->fd == -EINVAL ? "a pipe, or another user's link: name a file"
									 : strerror(-log->fd));
			return err->code;
		}
	}
	if (log->fd < 0)
		openlog("unshard", LOG_PID, LOG_DAEMON);
	return 0;
}

void log_close(struct log *log)
{
	if (log->fd > STDERR_FILENO)
		close(log->fd);
	if (log->fd < 0)
		closelog();
}

void log_line(void *ctx, int level, const char *line)
{
	static const int priority[N_LEVELS] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	static const char *const word[N_LEVELS] = { "error", "warning", "info", "debug" };
	struct log *log = ctx;
	char stamp[32] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (level < 0 || level >= N_LEVELS)
		level = N_LEVELS - 1;
	if (log->holds) {
		snprintf(log->held, sizeof(log->held), "%s", line);
		return;
	}
	if (log->fd < 0) {
		syslog(priority[level], "%s", line);
		return;
	}
	if (log->with_time && gmtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ ", &tm);
	if (log->fd == STDERR_FILENO) {
		pthread_mutex_lock(&told_lock);
		snprintf(log->told.text, sizeof(log->told.text), "%s", line);
		pthread_mutex_unlock(&told_lock);
	}
	if (*log->file) {
		pthread_mutex_lock(&told_lock);
		keep_small(log);
		pthread_mutex_unlock(&told_lock);
	}
	dprintf(log->fd, "%s%s: %s\n", stamp, log->with_time ? word[level] : "unshard", line);
}

int log_fail(const struct log *log, const struct unshard_error *err)
{
	bool told;

	pthread_mutex_lock(&told_lock);
	told = *err->text && !strcmp(err->text, log->told.text);
	pthread_mutex_unlock(&told_lock);
	return told ? EXIT_COULD_NOT : command_fail("%s", *err->text ? err->text : "out of memory");
}

const char *log_where(const struct log *log, const char *path)
{
	if (path)
		return path;
	if (log->fd == STDERR_FILENO)
		return "stderr";
	if (*log->file)
		return log->file;
	if (access("/dev/log", F_OK) == 0)
		return "syslog";
	return "nowhere: no syslog, and no directory for a log file (-o log=FILE)";
}
