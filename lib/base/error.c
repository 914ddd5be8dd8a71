/* Formatting of error sentences. Knows nothing but text. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

bool uns_err_takes(const struct uns_err *err, int code)
{
	return err && (!err->code || (uns_code_is_finding(err->code) && !uns_code_is_finding(code)));
}

int uns_fail(struct uns_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (code >= 0)
		code = -EIO; /* an errno that was never set: it must not pass for success */
	if (!uns_err_takes(err, code))
		return code;
	if (err->code) {
		err->finding = NULL;
		err->file = err->cause = NULL;
	}
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	uns_one_line(err->text, strlen(err->text));
	return code;
}

int uns_oom(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory");
}

int uns_arena_check(const struct uns_arena *arena, struct uns_err *err)
{
	return arena->failed ? uns_oom(err) : 0;
}

/* false = out of memory. */
static bool keep_text(struct uns_arena *keep, const char *text, const char **out)
{
	return !text || (*out = uns_arena_str(keep, text));
}

int uns_fail_as(struct uns_err *err, const struct uns_err *why)
{
	const bool keeps = uns_err_takes(err, why->code) && err->keep;
	const char *file = NULL, *cause = NULL;
	int code;

	if (keeps && (!keep_text(err->keep, why->file, &file) || !keep_text(err->keep, why->cause, &cause)))
		return uns_oom(err);
	code = uns_fail(err, why->code, "%s", why->text);
	if (keeps) {
		err->finding = why->finding;
		err->file = file;
		err->cause = cause;
	}
	return code;
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
	if (why->code != code) /* it is about something else, or empty */
		return code == -ENOMEM ? uns_oom(err) : uns_fail(err, code, "%s", strerror(-code));
	return uns_fail_as(err, why);
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
	uns_one_line(err->text, strlen(err->text));
	err->finding = NULL; /* has less than the sentence now */
	err->cause = NULL;
	return err->code;
}

int uns_fail_about(struct uns_err *err, const char *path)
{
	if (!err)
		return -EIO;
	if (err->keep && !err->file && !err->finding)
		err->file = uns_arena_str(err->keep, path);
	return err->code;
}

int uns_fail_in_file(struct uns_err *err, const char *path)
{
	const char *file, *cause;

	if (!err)
		return -EIO;
	if (err->finding)
		return err->code; /* its sentence names the file */
	if (!err->keep || err->file)
		return uns_fail_in(err, "%s", path);
	file = uns_arena_str(err->keep, path);
	cause = uns_arena_str(err->keep, err->text);
	uns_fail_in(err, "%s", path);
	err->file = file;
	err->cause = file ? cause : NULL;
	return err->code;
}
