/* The names in a directory. */
#ifndef UNS_IO_LISTING_H
#define UNS_IO_LISTING_H

#include <stddef.h>

#include "io/stat.h"

struct uns_entry {
	const char *name;
	enum uns_kind kind; /* of the entry itself; links are UNS_KIND_LINK */
};

struct uns_listing {
	struct uns_entry *v; /* in natural order of names; without "." and ".." */
	size_t n;
};

#endif
