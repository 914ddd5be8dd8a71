/* The permissions of what is made of several files. Mode bits have one owner, one group and the others; sources may
 * have other owners and groups. The bits here never allow anybody what a source, or a directory on its way,
 * denies; where that is not known (is this owner in that group?) they deny.
 *
 * Pure; any thread. */
#ifndef UNS_IO_ACCESS_H
#define UNS_IO_ACCESS_H

#include "io/stat.h"

struct uns_access {
	uint32_t uid, gid;
	uint32_t mode; /* 0444, or what is left of it */
};

/* All that the file's owner and group could be allowed. */
struct uns_access uns_access_of(const struct uns_stat *file);

/* Only users that may read this file may read the result. */
void uns_access_demand(struct uns_access *access, const struct uns_stat *file);

/* The file, or directory, is reached through this directory: its mode is what both allow. */
void uns_access_through(struct uns_stat *file, const struct uns_stat *dir);

#endif
