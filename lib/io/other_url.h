/* Addresses that unshard does not read, so that they are not taken for names of files. */
#ifndef UNS_IO_OTHER_URL_H
#define UNS_IO_OTHER_URL_H

#include "base/error.h"

/* 0 where `path` is none ("SCHEME://...", but for s3); else -ENOTSUP, with what to do instead. */
int uns_other_url_refuse(const char *path, struct uns_err *err);

#endif
