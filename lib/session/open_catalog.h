/* A checkpoint's catalog, made by its format from its own files. */
#ifndef UNS_SESSION_OPEN_CATALOG_H
#define UNS_SESSION_OPEN_CATALOG_H

#include "examine/examine.h"

struct opening {
	const struct uns_root *root;
	const char *const *adapters; /* as struct uns_directory has them */
	const char *path; /* below root */
	const struct examined *is; /* a checkpoint */
	const struct uns_format_options *options;
};

/* Fills a new catalog with what is in the files of the capture. */
int open_catalog(const struct opening *o, struct uns_capture *capture, struct uns_catalog *cat, struct uns_err *err);

#endif
