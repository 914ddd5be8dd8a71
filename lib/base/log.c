/* One line in, one call of the sink out. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
	uns_log_sink *sink;
	void *ctx;
	enum uns_log_level max_level;
} target;

void uns_log_set(uns_log_sink *sink, void *ctx, enum uns_log_level max_level)
{
	target.sink = sink;
	target.ctx = ctx;
	target.max_level = max_level;
}

void uns_log(enum uns_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (!target.sink || level > target.max_level)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	target.sink(target.ctx, level, line);
}
