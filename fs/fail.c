/* The one place where fs writes a sentence. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

int fs_fail(struct unshard_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err || err->code)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}
