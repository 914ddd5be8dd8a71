/* A ring of lines. */
#include "session/errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

int give_error(struct unshard_error *out, const struct uns_err *err, int code)
{
	if (out && code < 0) {
		out->code = code;
		snprintf(out->text, sizeof(out->text), "%s",
			 err->text[0] ? err->text : strerror(-code));
	}
	return code;
}

void errors_init(struct errors *errors)
{
	memset(errors, 0, sizeof(*errors));
	pthread_mutex_init(&errors->lock, NULL);
}

void errors_fini(struct errors *errors)
{
	size_t i;

	for (i = 0; i < ERROR_LOG_LINES; i++)
		free(errors->line[i]);
	pthread_mutex_destroy(&errors->lock);
}

void errors_add(struct errors *errors, const struct uns_err *err, const char *where)
{
	struct uns_text text = UNS_TEXT_INIT;
	char stamp[32], *line, *was, **slot;
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm);
	uns_log(UNS_LOG_ERROR, "%s: %s", where, err->text);
	__atomic_add_fetch(&errors->n, 1, __ATOMIC_RELAXED);
	uns_text_printf(&text, "%s %s: %s", stamp, where, err->text);
	line = uns_text_take(&text, NULL);
	pthread_mutex_lock(&errors->lock);
	slot = &errors->line[errors->n_lines++ % ERROR_LOG_LINES];
	was = *slot;
	*slot = line;
	pthread_mutex_unlock(&errors->lock);
	free(was);
}

void errors_print(struct errors *errors, struct uns_text *out)
{
	size_t i, first;

	pthread_mutex_lock(&errors->lock);
	first = errors->n_lines > ERROR_LOG_LINES ? errors->n_lines - ERROR_LOG_LINES : 0;
	for (i = first; i < errors->n_lines; i++)
		uns_text_printf(out, "%s\n", errors->line[i % ERROR_LOG_LINES]);
	pthread_mutex_unlock(&errors->lock);
}
