/* One line in, one call of the sink out. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

void uns_log(const struct uns_log *log, enum uns_log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (!log || !log->sink || (int)level > log->max_level)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	uns_one_line(line, strlen(line));
	log->sink(log->ctx, (int)level, line);
}
