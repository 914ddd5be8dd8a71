/* Which way of reading suits a file system (engine/ways.h), remembered in the metadata store by the file system's type
 * and source: "fuse.rclone remote:", whose device number changes with each mount.
 *
 * What is known if pages are to stay is known apart: the fastest of fewer ways.
 *
 * Threads: any. ctx: struct ways_kept. */
#ifndef UNS_SESSION_WAYS_KEPT_H
#define UNS_SESSION_WAYS_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "io/direct.h"

struct store_link;

struct ways_kept {
	struct store_link *store;
	bool keeps_pages;
};

/* By which way files of this device are read if no option names one. */
enum uns_way ways_usual(uint64_t dev);

/* false: nothing is known. */
bool ways_recall(void *ctx, uint64_t dev, enum uns_way *out);
void ways_keep(void *ctx, uint64_t dev, enum uns_way way);

#endif
