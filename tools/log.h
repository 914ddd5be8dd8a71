/* Where log lines go: a file, syslog or stderr. */
#ifndef TOOLS_LOG_H
#define TOOLS_LOG_H

#include <stdbool.h>

#include "unshard.h"

struct log {
	int fd; /* -1 = syslog */
	bool with_time;
	char file[4096]; /* the default log file, which is kept below a size; "" = none */
	bool holds;     /* lines are kept in `held` in place of being written: the last one */
	char held[512];
	struct unshard_error told; /* text: the last line, if it went to stderr */
};

/* `path` NULL: stderr when in the foreground, else syslog, or where there is none the file unshard/mount.log in
 * $XDG_STATE_HOME or ~/.local/state (8 MiB at most, and as much in mount.log.1). Opened before going to the background,
 * so that the command can still print the reason. */
int log_open(struct log *log, const char *path, bool foreground, struct unshard_error *err);
void log_close(struct log *log);

/* End a command with this sentence on stderr, where the log may have it already. Returns EXIT_COULD_NOT. */
int log_fail(const struct log *log, const struct unshard_error *err);

/* A sink for unshard_options.log; ctx is the struct log. Any thread. */
void log_line(void *ctx, int level, const char *line);

/* For people: "syslog (unshard[PID])", "stderr", FILE. */
const char *log_where(const struct log *log, const char *path);

#endif
