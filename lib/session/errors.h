/* Errors on their way out: to the caller, and into the list that people look through afterwards. */
#ifndef UNS_SESSION_ERRORS_H
#define UNS_SESSION_ERRORS_H

#include <pthread.h>

#include "base/error.h"
#include "base/text.h"
#include "unshard.h"

/* For a function of unshard.h: hand out the sentence of a negative code; returns the code. */
int give_error(struct unshard_error *out, const struct uns_err *err, int code);

enum { ERROR_LOG_LINES = 256 };

/* Reads that failed. Threads: any. */
struct errors {
	pthread_mutex_t lock;
	char *line[ERROR_LOG_LINES]; /* a ring */
	size_t n_lines;
	uint64_t n; /* atomic */
};

void errors_init(struct errors *errors);
void errors_fini(struct errors *errors);
/* Logged as well. */
void errors_add(struct errors *errors, const struct uns_err *err, const char *where);
void errors_print(struct errors *errors, struct uns_text *out);

#endif
