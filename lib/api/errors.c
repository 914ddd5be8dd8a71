/* Sentences that are returned, and kept. */
#include "api/errors.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int give_error(struct unshard_error *out, const struct uns_err *err, int code)
{
	if (out && code < 0) {
		out->code = code;
		snprintf(out->text, sizeof(out->text), "%s", err->text[0] ? err->text : strerror(-code));
	}
	return code;
}

void errors_add(struct uns_ring *errors, const struct uns_log *log, const struct uns_err *err, const char *where)
{
	struct uns_text line = UNS_TEXT_INIT;
	time_t now = time(NULL);
	char stamp[32];
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm);
	uns_log(log, UNS_LOG_ERROR, "%s: %s", where, err->text);
	uns_text_printf(&line, "%s %s: %s", stamp, where, err->text);
	uns_ring_add(errors, uns_text_take(&line, NULL));
}
