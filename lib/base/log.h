/* Where log lines go is decided once by the program that uses the library; until then they are
 * dropped. The level is the only mutable state at file scope in the project, together with the
 * sink set before any thread starts. */
#ifndef UNS_BASE_LOG_H
#define UNS_BASE_LOG_H

enum uns_log_level { UNS_LOG_ERROR, UNS_LOG_WARN, UNS_LOG_INFO, UNS_LOG_DEBUG };

typedef void uns_log_sink(void *ctx, enum uns_log_level level, const char *line);

/* Not thread safe: call before threads start. sink NULL = drop. */
void uns_log_set(uns_log_sink *sink, void *ctx, enum uns_log_level max_level);

/* Any thread. One line, no newline. */
__attribute__((format(printf, 2, 3))) void uns_log(enum uns_log_level level, const char *fmt, ...);

#endif
