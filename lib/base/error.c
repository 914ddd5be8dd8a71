/* Formatting of error sentences. Knows nothing but text. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int uns_fail(struct uns_err *err, int code, const char *fmt, ...)
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

int uns_oom(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory");
}

bool uns_code_is_finding(int code)
{
	switch (code) {
	case -ENOENT:
	case -ENOTDIR:
	case -ELOOP:
	case -EXDEV:
	case -EBADMSG:
	case -ENODATA:
	case -ENOTSUP:
		return true;
	default:
		return false;
	}
}

int uns_fail_if_passing(struct uns_err *err, int code, const struct uns_err *why)
{
	if (code >= 0 || uns_code_is_finding(code))
		return 0;
	return uns_fail(err, code, "%s", why->text);
}

int uns_fail_in(struct uns_err *err, const char *fmt, ...)
{
	char old[UNS_ERR_TEXT];
	va_list ap;
	int used;

	if (!err)
		return -EIO;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	used = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (used >= 0 && (size_t)used < sizeof(err->text))
		snprintf(err->text + used, sizeof(err->text) - (size_t)used, ": %s", old);
	return err->code;
}
