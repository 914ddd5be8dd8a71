/* Bytes as the store keeps them: compressed, with a checksum of zstd's. */
#ifndef UNS_STORE_PACKED_H
#define UNS_STORE_PACKED_H

#include "base/arena.h"
#include "base/span.h"
#include "store/database.h"

#define STORE_PACKED_MAX_BYTES (UINT64_C(1) << 30) /* before they are compressed */

/* out: malloc'd. */
int store_pack(const void *bytes, size_t len, char **out, size_t *n, struct uns_err *err);
/* -EBADMSG: `what` of the store is damaged. The arena's bytes are followed by a NUL. */
int store_unpack(const struct uns_store *store, struct uns_span packed, const char *what, struct uns_arena *arena,
		 struct uns_span *out, struct uns_err *err);

#endif
