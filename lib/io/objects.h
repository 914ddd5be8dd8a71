/* The second kind of source: objects below a prefix of a bucket, as a tree of directories. io/source.h asks here where
 * a root is one; nothing else does.
 *
 * A listing answers everything but reads: names, sizes, times and ETags come by the thousand. One is kept for a moment,
 * as the kernel keeps a directory's attributes. A tree of many objects is listed level by level.
 *
 * An object's identity is its ETag, its size and LastModified. Every request has the ETag (If-Match), so that an object
 * that was replaced gives -ESTALE, never bytes of both. Bytes that were fetched are kept (io/object_blocks.h).
 *
 * Codes are negative errnos without a sentence where no struct uns_err is taken. Threads: any number. */
#ifndef UNS_IO_OBJECTS_H
#define UNS_IO_OBJECTS_H

#include "base/arena.h"
#include "base/error.h"
#include "io/listing.h"

/* "s3://..." */
bool uns_objects_is_url(const char *path);

struct uns_objects;

/* Lists it: -ENOENT where no key begins with the prefix. -EINVAL: no such URL. */
int uns_objects_open(const char *url, struct uns_objects **out, struct uns_err *err);
/* What is around it, by the same way: the prefix one level up. *out is NULL for a whole bucket. Asks no server. */
int uns_objects_above(struct uns_objects *objects, struct uns_objects **out, struct uns_err *err);
void uns_objects_close(struct uns_objects *objects); /* NULL is allowed; files that are open stay open */

/* Nothing has been asked for a while: memory of what was fetched goes back to the system. */
void uns_objects_rest(struct uns_objects *objects);

/* "s3://BUCKET/PREFIX" without a slash at its end. */
const char *uns_objects_url(const struct uns_objects *objects);

/* Fails with a sentence where the store cannot be asked; -ENOENT has none. */
int uns_objects_stat(struct uns_objects *objects, const char *rel, struct uns_stat *out, struct uns_err *err);
/* Names in no order. */
int uns_objects_list(struct uns_objects *objects, const char *rel, struct uns_arena *arena, struct uns_listing *out,
		     struct uns_err *err);

/* A directory as a handle (base/handle.h), of which uns_objects_stat_in looks at one name. */
int uns_objects_open_dir(struct uns_objects *objects, const char *rel, int *fd, struct uns_stat *out,
			 struct uns_err *err);
int uns_objects_stat_in(int dir, const char *name, struct uns_stat *out);

/* A file as a handle, as it was when it was listed. Asks no server where the listing is new. */
int uns_objects_open_file(struct uns_objects *objects, const char *rel, int *fd, struct uns_stat *out,
			  struct uns_err *err);
/* What it was when it was opened: what is read since is of that, or fails. */
const struct uns_identity *uns_object_identity(int fd);
/* -ESTALE: it was replaced or removed, and not all of these bytes are in memory. Its sentence names the object. */
int uns_object_pread(int fd, void *buf, size_t len, uint64_t off, struct uns_err *err);
/* These bytes will be read: threads fetch them. Never waits. */
void uns_object_will_read(int fd, uint64_t at, uint64_t end);

#endif
