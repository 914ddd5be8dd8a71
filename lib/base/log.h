/* Log lines. There is no log of the process: each session has its own, and what it opens (engine,
 * store) holds a pointer to it. So the lines of one session never reach the sink of another, and
 * nothing can call a sink once its session is closed. */
#ifndef UNS_BASE_LOG_H
#define UNS_BASE_LOG_H

enum uns_log_level { UNS_LOG_ERROR, UNS_LOG_WARN, UNS_LOG_INFO, UNS_LOG_DEBUG };

/* Constant once filled in, so that any thread may use it. All zero drops every line. */
struct uns_log {
	void (*sink)(void *ctx, int level, const char *line);
	void *ctx;
	int max_level;
};

/* One line, no newline. log may be NULL = drop. Any thread. */
__attribute__((format(printf, 3, 4))) void uns_log(const struct uns_log *log, enum uns_log_level level, const char *fmt,
						   ...);

#endif
