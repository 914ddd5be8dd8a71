/* An array of entries, in the order in which they were added, and a table of slots that leads from a
 * key's hash to its entry (open addressing with linear probing, at most 3/4 full, backward-shift
 * deletion). Keys come from files of unknown origin, so the hash is keyed: the writer of a file
 * cannot choose names that collide. */
#include "base/map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"

struct uns_map_entry {
	const char *key; /* NULL = deleted */
	void *value;
	uint32_t hash;
};

struct uns_map_slot {
	uint32_t hash;
	uint32_t entry; /* its number, from 1 on; 0 = free */
};

enum { FIRST_CAP = 16 };

/* The slot that leads to the key, or the free one where it would go. */
static size_t slot_find(const struct uns_map *map, const char *key, uint32_t hash)
{
	size_t i = hash & (map->cap - 1);

	for (; map->slot[i].entry; i = (i + 1) & (map->cap - 1))
		if (map->slot[i].hash == hash && strcmp(map->entry[map->slot[i].entry - 1].key, key) == 0)
			break;
	return i;
}

static uint32_t hash_of(const char *key)
{
	return (uint32_t)uns_keyed_hash(key, strlen(key));
}

static struct uns_map_entry *entry_of(const struct uns_map *map, const char *key, uint32_t hash)
{
	const struct uns_map_slot *s;

	if (!map->cap)
		return NULL;
	s = &map->slot[slot_find(map, key, hash)];
	return s->entry ? &map->entry[s->entry - 1] : NULL;
}

static struct uns_map_entry *entry_find(const struct uns_map *map, const char *key)
{
	return key && map->cap ? entry_of(map, key, hash_of(key)) : NULL;
}

void *uns_map_get(const struct uns_map *map, const char *key)
{
	const struct uns_map_entry *e = entry_find(map, key);

	return e ? e->value : NULL;
}

void *uns_map_get_in_turn(const struct uns_map *map, const char *key, size_t *turn, uint32_t *hash)
{
	const struct uns_map_entry *e = *turn < map->n_used ? &map->entry[*turn] : NULL;

	if (!key)
		return NULL;
	if (!e || !e->key || strcmp(e->key, key) != 0) {
		*hash = hash_of(key);
		e = entry_of(map, key, *hash);
	}
	if (!e)
		return NULL;
	*turn = (size_t)(e - map->entry) + 1;
	return e->value;
}

/* All keys are different and none is deleted. */
static void append(struct uns_map *map, const struct uns_map_entry *e)
{
	size_t i = e->hash & (map->cap - 1);

	while (map->slot[i].entry)
		i = (i + 1) & (map->cap - 1);
	map->entry[map->n_used++] = *e;
	map->slot[i] = (struct uns_map_slot){ e->hash, (uint32_t)map->n_used };
	map->n++;
}

static bool map_resize(struct uns_map *map, size_t cap)
{
	struct uns_map bigger = { .cap = cap };
	size_t i;

	if (cap > UINT32_MAX / 2)
		return false;
	bigger.slot = calloc(cap, sizeof(*bigger.slot));
	bigger.entry = malloc(cap / 4 * 3 * sizeof(*bigger.entry));
	if (!bigger.slot || !bigger.entry) {
		uns_map_fini(&bigger);
		return false;
	}
	for (i = 0; i < map->n_used; i++)
		if (map->entry[i].key)
			append(&bigger, &map->entry[i]);
	uns_map_fini(map);
	*map = bigger;
	return true;
}

/* Room for more: twice as large, unless half of the entries are deleted ones. */
static bool map_grow(struct uns_map *map)
{
	return map_resize(map, !map->cap ? FIRST_CAP : map->n < map->n_used / 2 ? map->cap : map->cap * 2);
}

bool uns_map_reserve(struct uns_map *map, size_t n)
{
	size_t cap = map->cap ? map->cap : FIRST_CAP;

	while (cap <= UINT32_MAX / 2 && cap / 4 * 3 - map->n_used < n)
		cap *= 2;
	return cap == map->cap || map_resize(map, cap);
}

bool uns_map_put_new(struct uns_map *map, const char *key, uint32_t hash, void *value)
{
	if (!key || !value || (map->n_used == map->cap / 4 * 3 && !map_grow(map)))
		return false;
	append(map, &(struct uns_map_entry){ key, value, hash });
	return true;
}

bool uns_map_put(struct uns_map *map, const char *key, void *value, void **old)
{
	const uint32_t hash = key ? hash_of(key) : 0;
	struct uns_map_entry *e = key ? entry_of(map, key, hash) : NULL;

	if (old)
		*old = e ? e->value : NULL;
	if (!key || !value)
		return false;
	if (e) {
		e->value = value;
		return true;
	}
	return uns_map_put_new(map, key, hash, value);
}

/* Move up what linear probing would no longer find behind the hole. */
static void close_hole(struct uns_map *map, size_t hole)
{
	const size_t mask = map->cap - 1;
	size_t i, home;

	for (i = (hole + 1) & mask; map->slot[i].entry; i = (i + 1) & mask) {
		home = map->slot[i].hash & mask;
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			map->slot[hole] = map->slot[i];
			hole = i;
		}
	}
	map->slot[hole] = (struct uns_map_slot){ 0 };
}

void *uns_map_del(struct uns_map *map, const char *key)
{
	struct uns_map_entry *e = entry_find(map, key);
	void *value;

	if (!e)
		return NULL;
	value = e->value;
	close_hole(map, slot_find(map, key, e->hash));
	e->key = NULL;
	map->n--;
	return value;
}

bool uns_map_next(const struct uns_map *map, size_t *at, const char **key, void **value)
{
	while (*at < map->n_used && !map->entry[*at].key)
		++*at;
	if (*at == map->n_used)
		return false;
	if (key)
		*key = map->entry[*at].key;
	if (value)
		*value = map->entry[*at].value;
	++*at;
	return true;
}

size_t uns_map_probes(const struct uns_map *map)
{
	size_t i, sum = 0;

	for (i = 0; i < map->cap; i++)
		if (map->slot[i].entry)
			sum += ((i - map->slot[i].hash) & (map->cap - 1)) + 1;
	return sum;
}

void uns_map_fini(struct uns_map *map)
{
	free(map->slot);
	free(map->entry);
	*map = UNS_MAP_INIT;
}
