/* Errors on their way out: to the caller, and into the list that people look through afterwards. */
#ifndef UNS_API_ERRORS_H
#define UNS_API_ERRORS_H

#include "base/error.h"
#include "base/log.h"
#include "base/ring.h"
#include "unshard.h"

/* For a function of unshard.h: returns the code, and keeps its sentence if it is negative. */
int give_error(struct unshard_error *out, const struct uns_err *err, int code);

/* A read that failed: logged, and added to the list with the time. */
void errors_add(struct uns_ring *errors, const struct uns_log *log, const struct uns_err *err, const char *where);

#endif
