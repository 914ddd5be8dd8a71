/* The files of a checkpoint beside what they were when it was opened last: the metadata store remembers them. */
#ifndef UNS_SESSION_LAST_LOOK_H
#define UNS_SESSION_LAST_LOOK_H

#include "model/catalog.h"
#include "store/store_link.h"

/* Adds a finding to the catalog for each file that has had another's name since, while that other has a third one's, or
 * this one's: files that changed places. Files that were written, restored or copied since are others by inode, time
 * or birth, and never found. What was remembered then stays, so that it is found again until each has its own name;
 * otherwise the files as they are now are remembered. Of a checkpoint that was sealed (is_sealed) nothing is found: its
 * seal is compared instead. Without a store, or where inode numbers do not last, nothing is found. */
int last_look_compare(struct store_link *store, const struct uns_root *root, bool is_sealed, struct uns_catalog *cat,
		      struct uns_err *err);

#endif
