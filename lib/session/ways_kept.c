#include "session/ways_kept.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "io/mounts.h"
#include "store/store_link.h"

static const char *kind_of(const struct ways_kept *kept)
{
	return kept->keeps_pages ? "way_in_pages" : "way";
}

static bool key_of(uint64_t dev, uint64_t *key)
{
	char name[4096];

	if (!uns_mount_name(major(dev), minor(dev), name, sizeof(name)))
		return false;
	*key = uns_hash_end(uns_hash_str(UNS_HASH_INIT, name));
	return true;
}

/* rclone fetches a file as one stream, unless it has a cache of its own: which cannot be seen from here. JuiceFS
 * fetches blocks ahead of a file's reader, and parts of them more than once if it is not read in order. ceph-fuse reads
 * ahead of a file's reader, too, and needs less processor time for a request that waits for no other. */
static const char *const read_in_turn[] = { "fuse.rclone", "fuse.juicefs", "fuse.ceph-fuse" };

enum uns_way ways_usual(uint64_t dev)
{
	char type[64];
	size_t i;

	if (!uns_mount_type(major(dev), minor(dev), type, sizeof(type)))
		return UNS_WAY_CACHE;
	for (i = 0; i < sizeof(read_in_turn) / sizeof(*read_in_turn); i++)
		if (strcmp(type, read_in_turn[i]) == 0)
			return UNS_WAY_TURNS;
	return UNS_WAY_CACHE;
}

bool ways_recall(void *ctx, uint64_t dev, enum uns_way *out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct ways_kept *ways = ctx;
	struct uns_store *store;
	struct uns_span kept;
	uint64_t key;
	int code;

	if (!key_of(dev, &key) || !(store = store_hold(ways->store, NULL)))
		return false;
	code = uns_store_memo_get(store, kind_of(ways), key, &arena, &kept, NULL);
	store_release(ways->store);
	return code == 0 && uns_way_find((const char *)kept.p, uns_span_left(&kept), out);
}

void ways_keep(void *ctx, uint64_t dev, enum uns_way way)
{
	const struct ways_kept *ways = ctx;
	const char *name = uns_way_name(way);
	struct uns_store *store;
	uint64_t key;

	if (!name || !key_of(dev, &key) || !(store = store_hold(ways->store, NULL)))
		return;
	uns_store_memo_put(store, kind_of(ways), key, name, strlen(name), NULL);
	store_release(ways->store);
}
