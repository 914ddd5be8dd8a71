/* A hash table from strings to pointers, whose entries keep the order in which they were added.
 * Keys are borrowed: they must outlive the map. Not thread safe. */
#ifndef UNS_BASE_MAP_H
#define UNS_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uns_map {
	struct uns_map_slot *slot;
	struct uns_map_entry *entry;
	size_t cap;    /* slots: a power of two, or 0 */
	size_t n_used; /* entries, deleted ones among them */
	size_t n;
};

#define UNS_MAP_INIT ((struct uns_map){ 0 })

/* The value, or NULL when the key is absent or NULL. O(1), whatever the keys are. */
void *uns_map_get(const struct uns_map *map, const char *key);

/* The same when keys are likely asked for in the order in which they were added: looks first at the entry behind the
 * one that was found last. *turn: where that is; begins with 0. *hash: of a key that is absent, for uns_map_put_new. */
void *uns_map_get_in_turn(const struct uns_map *map, const char *key, size_t *turn, uint32_t *hash);

/* Inserts or replaces; `old` (may be NULL) receives the value replaced, or NULL. Returns false if memory is out, also
 * if key or value is NULL because it could not be allocated. */
bool uns_map_put(struct uns_map *map, const char *key, void *value, void **old);

/* Puts a key that uns_map_get_in_turn has not found. Returns false as uns_map_put does. */
bool uns_map_put_new(struct uns_map *map, const char *key, uint32_t hash, void *value);

/* Makes room for n more keys at once: adding them then moves none. Returns false if memory is out. */
bool uns_map_reserve(struct uns_map *map, size_t n);

/* For a map of numbers: values are stored as they are asked for here, plus one. */
#define UNS_MAP_NO_INDEX UINT32_MAX
static inline bool uns_map_put_index(struct uns_map *map, const char *key, uint32_t index)
{
	return uns_map_put(map, key, (void *)((uintptr_t)index + 1), NULL);
}
/* UNS_MAP_NO_INDEX when the key is absent. */
static inline uint32_t uns_map_index(const struct uns_map *map, const char *key)
{
	return (uint32_t)((uintptr_t)uns_map_get(map, key) - 1);
}

/* Remove and return the value, or NULL. */
void *uns_map_del(struct uns_map *map, const char *key);

/* Visit in the order of insertion: start with *at = 0; false when done. Do not change the map
 * meanwhile. */
bool uns_map_next(const struct uns_map *map, size_t *at, const char **key, void **value);

/* How many slots are looked at to find every key once: what a flood of colliding keys would raise. */
size_t uns_map_probes(const struct uns_map *map);

void uns_map_fini(struct uns_map *map);

#endif
