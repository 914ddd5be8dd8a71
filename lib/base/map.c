/* Open addressing with linear probing and backward-shift deletion; at most 3/4 full. */
#include "base/map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct uns_map_slot {
	const char *key; /* NULL = free */
	void *value;
	uint64_t hash;
};

static uint64_t key_hash(const char *key)
{
	return uns_hash_end(uns_hash_str(UNS_HASH_INIT, key));
}

static struct uns_map_slot *slot_find(const struct uns_map *map, const char *key, uint64_t hash)
{
	size_t i = (size_t)hash & (map->cap - 1);

	while (map->slot[i].key &&
	       (map->slot[i].hash != hash || strcmp(map->slot[i].key, key) != 0))
		i = (i + 1) & (map->cap - 1);
	return &map->slot[i];
}

void *uns_map_get(const struct uns_map *map, const char *key)
{
	return map->cap ? slot_find(map, key, key_hash(key))->value : NULL;
}

static bool map_grow(struct uns_map *map)
{
	struct uns_map bigger = { .cap = map->cap ? map->cap * 2 : 16, .n = map->n };
	size_t i;

	bigger.slot = calloc(bigger.cap, sizeof(*bigger.slot));
	if (!bigger.slot)
		return false;
	for (i = 0; i < map->cap; i++)
		if (map->slot[i].key)
			*slot_find(&bigger, map->slot[i].key, map->slot[i].hash) = map->slot[i];
	free(map->slot);
	*map = bigger;
	return true;
}

bool uns_map_put(struct uns_map *map, const char *key, void *value, void **old)
{
	uint64_t hash = key_hash(key);
	struct uns_map_slot *s;

	if ((map->n + 1) * 4 > map->cap * 3 && !map_grow(map))
		return false;
	s = slot_find(map, key, hash);
	if (old)
		*old = s->value;
	if (!s->key) {
		map->n++;
		s->key = key;
		s->hash = hash;
	}
	s->value = value;
	return true;
}

void *uns_map_del(struct uns_map *map, const char *key)
{
	struct uns_map_slot *s;
	size_t hole, i, home;
	void *value;

	if (!map->cap)
		return NULL;
	s = slot_find(map, key, key_hash(key));
	if (!s->key)
		return NULL;
	value = s->value;
	hole = (size_t)(s - map->slot);
	for (i = (hole + 1) & (map->cap - 1); map->slot[i].key; i = (i + 1) & (map->cap - 1)) {
		home = (size_t)map->slot[i].hash & (map->cap - 1);
		if (((i - home) & (map->cap - 1)) >= ((i - hole) & (map->cap - 1))) {
			map->slot[hole] = map->slot[i];
			hole = i;
		}
	}
	map->slot[hole] = (struct uns_map_slot){ 0 };
	map->n--;
	return value;
}

bool uns_map_next(const struct uns_map *map, size_t *at, const char **key, void **value)
{
	for (; *at < map->cap; ++*at) {
		if (!map->slot[*at].key)
			continue;
		if (key)
			*key = map->slot[*at].key;
		if (value)
			*value = map->slot[*at].value;
		++*at;
		return true;
	}
	return false;
}

void uns_map_fini(struct uns_map *map)
{
	free(map->slot);
	*map = UNS_MAP_INIT;
}
