/* The hash for tables in memory: SipHash-1-3 under a random key, which each process draws for
 * itself. The writer of a file cannot know which names collide, so a table of n names costs O(n),
 * whatever the names are. Not for anything that leaves the process: see base/hash.h. */
#ifndef UNS_BASE_KEYED_HASH_H
#define UNS_BASE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t uns_keyed_hash(const void *bytes, size_t len); /* any thread */

/* The same under a given key: what uns_keyed_hash is made of, for tests. */
uint64_t uns_siphash_1_3(const uint64_t key[2], const void *bytes, size_t len);

#endif
