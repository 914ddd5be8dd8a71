/* Where log lines go: a file, syslog or stderr. */
#ifndef TOOLS_LOG_H
#define TOOLS_LOG_H

#include <stdbool.h>

#include "unshard.h"

struct log {
	int fd; /* -1 = syslog */
	bool with_time;
	struct unshard_error told; /* text: the last line, if it went to stderr */
};

/* `path` NULL: stderr when in the foreground, else syslog. Opened before going to the background,
 * so that the command can still print the reason. */
int log_open(struct log *log, const char *path, bool foreground, struct unshard_error *err);
void log_close(struct log *log);

/* End a command with this sentence on stderr, where the log may have it already. Returns EXIT_COULD_NOT. */
int log_fail(const struct log *log, const struct unshard_error *err);

/* A sink for unshard_options.log; ctx is the struct log. Any thread. */
void log_line(void *ctx, int level, const char *line);

/* For people: "syslog (unshard[PID])", "stderr", FILE. */
const char *log_where(const char *path, bool foreground);

#endif
