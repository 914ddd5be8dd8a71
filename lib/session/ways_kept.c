#include "session/ways_kept.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "io/mounts.h"
#include "store/store_link.h"

static const char kind[] = "way";

/* As the store has them. */
static const struct {
	const char *name;
	enum uns_way way;
} ways[] = { { "cached", UNS_WAY_CACHE }, { "ordered", UNS_WAY_TURNS }, { "direct", UNS_WAY_LONG } };
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static bool key_of(uint64_t dev, uint64_t *key)
{
	char name[4096];

	if (!uns_mount_name(major(dev), minor(dev), name, sizeof(name)))
		return false;
	*key = uns_hash_end(uns_hash_str(UNS_HASH_INIT, name));
	return true;
}

static bool is_name(struct uns_span kept, const char *name)
{
	return uns_span_left(&kept) == strlen(name) && memcmp(kept.p, name, strlen(name)) == 0;
}

bool ways_recall(void *ctx, uint64_t dev, enum uns_way *out)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_store *store;
	struct uns_span kept;
	uint64_t key;
	int code;
	size_t i;

	if (!key_of(dev, &key) || !(store = store_hold(ctx, NULL)))
		return false;
	code = uns_store_memo_get(store, kind, key, &arena, &kept, NULL);
	store_release(ctx);
	for (i = 0; code == 0 && i < N_WAYS; i++)
		if (is_name(kept, ways[i].name)) {
			*out = ways[i].way;
			return true;
		}
	return false;
}

void ways_keep(void *ctx, uint64_t dev, enum uns_way way)
{
	struct uns_store *store;
	uint64_t key;
	size_t i;

	if (!key_of(dev, &key) || !(store = store_hold(ctx, NULL)))
		return;
	for (i = 0; i < N_WAYS; i++)
		if (ways[i].way == way)
			uns_store_memo_put(store, kind, key, ways[i].name, strlen(ways[i].name), NULL);
	store_release(ctx);
}
