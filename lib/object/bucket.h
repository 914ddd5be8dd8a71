/* One bucket of an object store that speaks S3's protocol, and this process's way to it: address, region, credentials,
 * connections. Every request is signed, and tried again for a while where that may help.
 *
 * Threads: any number. */
#ifndef UNS_OBJECT_BUCKET_H
#define UNS_OBJECT_BUCKET_H

#include <sys/uio.h>

#include "object/answers.h"

struct uns_bucket;

/* By the environment and the profile: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION. Asks
 * no server. -EINVAL: no name of a bucket, or no address. */
int uns_bucket_open(const char *name, struct uns_bucket **out, struct uns_err *err);
struct uns_bucket *uns_bucket_ref(struct uns_bucket *bucket);
void uns_bucket_close(struct uns_bucket *bucket); /* when it was closed once for each reference, it is gone */

const char *uns_bucket_name(const struct uns_bucket *bucket);
/* Of the bucket's name and where it is: the same in every process. */
uint64_t uns_bucket_hash(const struct uns_bucket *bucket);

/* One page of up to a thousand keys that begin with `prefix`, added to the list; `after`: list->next, or NULL. If
 * `level`, keys that have a slash behind the prefix are reported as common prefixes. -ENOENT no such bucket, -EACCES.
 * One request. */
int uns_bucket_list(struct uns_bucket *bucket, const char *prefix, bool level, const char *after,
		    struct uns_arena *arena, struct uns_object_list *list, struct uns_err *err);

/* Bytes of an object that still has this ETag, from `off` on, as many as `into` holds. -ESTALE: it has another, or is
 * gone. One request. */
int uns_bucket_read(struct uns_bucket *bucket, const char *key, const char *etag, const struct iovec *into,
		    size_t n_into, uint64_t off, struct uns_err *err);

#endif
