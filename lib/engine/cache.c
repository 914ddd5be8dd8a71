/* Entries are found by (owner, id), and form a list by last use. An entry is in one of three states:
 *
 *   FILLING   a thread makes the bytes: it waits for room first, then for storage
 *   READY     readable while pinned; while not pinned it may be moved to a file or dropped, oldest first
 *   MOVING    a thread writes the bytes from memory to a file
 *
 * A thread that wants an entry which is FILLING or MOVING waits until it is READY or gone.
 *
 * No thread waits forever. A thread that waits for an entry or for room has none pinned; room is held by entries
 * that are READY (and become unpinned), MOVING (which waits for storage only), or FILLING with room taken
 * (which waits for storage only).
 *
 * One lock guards everything. Entries that leave the table under it are put on a list (dead), and freed by
 * the same thread as soon as it has dropped the lock: closing a large deleted file takes long. */
#include "engine/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/keyed_hash.h"
#include "engine/spill.h"

enum { N_BUCKETS = 1024 };
enum state { FILLING, READY, MOVING };

struct uns_cached {
	struct uns_cached *next;          /* in its bucket; or among the dead */
	TAILQ_ENTRY(uns_cached) by_use;
	struct uns_cache *cache;
	const void *owner;
	struct uns_cache_id id;
	enum state state;
	bool dropped; /* while MOVING: no longer in the table */
	unsigned n_pins;
	uint8_t *mem;  /* NULL: in the file */
	uint64_t mem_map_bytes; /* `mem` is a mapping of this length; 0 = of malloc */
	int fd;        /* -1: in memory */
	uint64_t size; /* counted against its budget */
	uint64_t base; /* where the content starts */
	bool once;     /* not needed any more when its last byte was read */
	_Atomic bool read_to_end;
	uint8_t *map;  /* of a spilled entry, while filling */
	uint64_t map_bytes;
};

struct uns_cache {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a state, a pin or a budget */
	struct uns_cached *bucket[N_BUCKETS], *dead;
	TAILQ_HEAD(, uns_cached) by_use; /* the oldest use first */
	struct uns_cache_limits held, max;
	char *dir;
	struct uns_counters *count;
	const struct uns_log *log;
};

int uns_cache_new(const struct uns_cache_limits *max, const char *dir, struct uns_counters *count,
		  const struct uns_log *log, struct uns_cache **out, struct uns_err *err)
{
	struct uns_cache *c = calloc(1, sizeof(*c));

	if (!dir || !*dir)
		dir = getenv("TMPDIR");
	if (!dir || !*dir)
		dir = "/tmp";
	if (!c || !(c->dir = strdup(dir))) {
		free(c);
		return uns_oom(err);
	}
	c->max = *max;
	c->count = count;
	c->log = log;
	TAILQ_INIT(&c->by_use);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	*out = c;
	return 0;
}

/* -- memory of entries -- */

/* What malloc gets back it may keep, in each thread's own arena: more than the budget, with entries of this size. */
enum { MAP_BYTES = 1 << 20 };

static bool mem_new(struct uns_cached *e, uint64_t size)
{
	void *map;

	if (size < MAP_BYTES) {
		e->mem = malloc(size ? size : 1);
		return e->mem != NULL;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return false;
	e->mem = map;
	e->mem_map_bytes = size;
	return true;
}

static void mem_shrink(struct uns_cached *e, uint64_t size)
{
	uint8_t *smaller = NULL;

	if (!e->mem_map_bytes)
		smaller = realloc(e->mem, size ? size : 1);
	else if (size && mremap(e->mem, e->mem_map_bytes, size, 0) == e->mem)
		e->mem_map_bytes = size;
	e->mem = smaller ? smaller : e->mem;
}

static void mem_free(struct uns_cached *e)
{
	if (e->mem_map_bytes)
		munmap(e->mem, e->mem_map_bytes);
	else
		free(e->mem);
	e->mem = NULL;
	e->mem_map_bytes = 0;
}

/* -- freeing: without the lock -- */

static void free_entries(struct uns_cached *e)
{
	struct uns_cached *next;

	for (; e; e = next) {
		next = e->next;
		if (e->map)
			uns_spill_unmap(e->map, e->map_bytes);
		mem_free(e);
		uns_close_p(&e->fd);
		free(e);
	}
}

static void cache_unlock(struct uns_cache *c)
{
	struct uns_cached *dead = UNS_TAKE(c->dead);

	pthread_mutex_unlock(&c->lock);
	free_entries(dead);
}

const char *uns_cache_dir(const struct uns_cache *c)
{
	return c->dir;
}

void uns_cache_free(struct uns_cache *c)
{
	struct uns_cached *e;

	if (!c)
		return;
	while ((e = TAILQ_FIRST(&c->by_use))) {
		TAILQ_REMOVE(&c->by_use, e, by_use);
		e->next = NULL;
		free_entries(e);
	}
	free_entries(c->dead);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c->dir);
	free(c);
}

/* -- table and order of use: lock held -- */

static struct uns_cached **bucket_of(struct uns_cache *c, const void *owner, struct uns_cache_id id)
{
	const struct {
		uint64_t owner;
		struct uns_cache_id id;
	} key = { (uintptr_t)owner, id };

	return &c->bucket[uns_keyed_hash(&key, sizeof(key)) % N_BUCKETS];
}

static struct uns_cached *entry_find(struct uns_cache *c, const void *owner, struct uns_cache_id id)
{
	struct uns_cached *e = *bucket_of(c, owner, id);

	while (e && (e->owner != owner || memcmp(&e->id, &id, sizeof(id)) != 0))
		e = e->next;
	return e;
}

static void count_mem(struct uns_cache *c, uint64_t add, uint64_t remove)
{
	c->held.mem_bytes += add - remove;
	uns_count(&c->count->cache_bytes, add - remove);
}

static void count_spill(struct uns_cache *c, uint64_t add, uint64_t remove)
{
	c->held.spill_bytes += add - remove;
	uns_count(&c->count->spill_bytes, add - remove);
}

static void table_remove(struct uns_cache *c, struct uns_cached *e)
{
	struct uns_cached **p = bucket_of(c, e->owner, e->id);

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	TAILQ_REMOVE(&c->by_use, e, by_use);
}

/* Give back what is counted for an entry that has left the table, and have it freed. */
static void entry_bury(struct uns_cache *c, struct uns_cached *e)
{
	if (e->mem) {
		count_mem(c, 0, e->size);
	} else if (e->fd >= 0) {
		count_spill(c, 0, e->size);
		c->held.spill_files--;
	}
	e->next = c->dead;
	c->dead = e;
	pthread_cond_broadcast(&c->changed);
}

static void entry_remove(struct uns_cache *c, struct uns_cached *e)
{
	table_remove(c, e);
	entry_bury(c, e);
}

/* -- making room: lock held on entry and return -- */

static struct uns_cached *oldest_idle(struct uns_cache *c, bool in_memory)
{
	struct uns_cached *e;

	TAILQ_FOREACH(e, &c->by_use, by_use)
	if (e->state == READY && !e->n_pins && (e->mem != NULL) == in_memory)
		break;
	return e;
}

static bool spill_fits(const struct uns_cache *c, uint64_t size)
{
	return size <= c->max.spill_bytes - c->held.spill_bytes && c->held.spill_files < c->max.spill_files;
}

/* Count a file of size bytes, in place of the oldest ones where need be. */
static bool take_spill(struct uns_cache *c, uint64_t size)
{
	struct uns_cached *e;

	if (size > c->max.spill_bytes)
		return false;
	while (!spill_fits(c, size) && (e = oldest_idle(c, false)))
		entry_remove(c, e);
	if (!spill_fits(c, size))
		return false;
	count_spill(c, size, 0);
	c->held.spill_files++;
	return true;
}

static void give_back_spill(struct uns_cache *c, uint64_t size)
{
	count_spill(c, 0, size);
	c->held.spill_files--;
}

/* Move an idle entry from memory to a file, or drop it: it can be made again. */
static void entry_move_out(struct uns_cache *c, struct uns_cached *e)
{
	struct uns_err err = { 0 };
	int fd = -1, code;

	if ((e->once && e->read_to_end) || !take_spill(c, e->size)) {
		entry_remove(c, e);
		return;
	}
	e->state = MOVING;
	cache_unlock(c);
	code = uns_spill_open(c->dir, &fd, &err);
	if (code == 0)
		code = uns_spill_write(c->dir, fd, e->mem, e->size, 0, &err);
	if (code < 0) {
		uns_log(c->log, UNS_LOG_WARN, "%s", err.text);
		uns_close_p(&fd);
	}
	pthread_mutex_lock(&c->lock);
	if (code < 0) {
		give_back_spill(c, e->size);
	} else {
		count_mem(c, 0, e->size);
		mem_free(e);
		e->fd = fd;
	}
	if (e->dropped)
		entry_bury(c, e);
	else if (code < 0)
		entry_remove(c, e);
	e->state = READY;
	pthread_cond_broadcast(&c->changed);
}

enum room { ROOM_NONE, ROOM_MEM, ROOM_SPILL };

/* Where size bytes may go now; counted against that budget. */
static enum room take_room(struct uns_cache *c, uint64_t size)
{
	struct uns_cached *idle;

	while (size <= c->max.mem_bytes) {
		if (size <= c->max.mem_bytes - c->held.mem_bytes) {
			count_mem(c, size, 0);
			return ROOM_MEM;
		}
		idle = oldest_idle(c, true);
		if (!idle)
			break;
		entry_move_out(c, idle);
	}
	return take_spill(c, size) ? ROOM_SPILL : ROOM_NONE;
}

static int wait_for_room(struct uns_cache *c, uint64_t size, enum room *out, struct uns_err *err)
{
	if (size > c->max.mem_bytes && (size > c->max.spill_bytes || !c->max.spill_files))
		return uns_fail(err, -ENOSPC,
				"a decoded piece of %llu bytes fits neither into the %llu bytes of memory "
				"nor the %llu bytes of %s that it may use; raise mem or cache_size",
				(unsigned long long)size, (unsigned long long)c->max.mem_bytes,
				(unsigned long long)c->max.spill_bytes, c->dir);
	while ((*out = take_room(c, size)) == ROOM_NONE) {
		if (!c->dead) {
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		cache_unlock(c);
		pthread_mutex_lock(&c->lock);
	}
	return 0;
}

/* -- getting: lock held on entry and return of the static ones -- */

static struct uns_cached *entry_add(struct uns_cache *c, const void *owner, struct uns_cache_id id)
{
	struct uns_cached *e = calloc(1, sizeof(*e));
	struct uns_cached **bucket = bucket_of(c, owner, id);

	if (!e)
		return NULL;
	e->cache = c;
	e->owner = owner;
	e->id = id;
	e->state = FILLING;
	e->fd = -1;
	e->next = *bucket;
	*bucket = e;
	TAILQ_INSERT_TAIL(&c->by_use, e, by_use);
	return e;
}

static int fill_entry(struct uns_cache *c, struct uns_cached *e, uint64_t size, uns_cache_fill *fill, void *ctx,
		      struct uns_err *err)
{
	enum room room = ROOM_NONE;
	int code = 0;

	UNS_TRY(wait_for_room(c, size, &room, err));
	e->size = size;
	cache_unlock(c);
	/* Without the lock: the entry is this thread's alone. */
	if (room == ROOM_SPILL)
		code = uns_spill_open(c->dir, &e->fd, err);
	else if (!mem_new(e, size))
		code = uns_fail(err, -ENOMEM, "no memory for a decoded piece of %llu bytes", (unsigned long long)size);
	if (code == 0)
		code = fill(ctx, e, err);
	pthread_mutex_lock(&c->lock);
	if (code < 0 && !e->mem && e->fd < 0) { /* entry_bury does not know where it was counted */
		if (room == ROOM_MEM)
			count_mem(c, 0, size);
		else
			give_back_spill(c, size);
	}
	return code;
}

static int get_locked(struct uns_cache *c, const void *owner, struct uns_cache_id id, uint64_t size,
		      uns_cache_fill *fill, void *ctx, struct uns_cached **out, struct uns_err *err)
{
	struct uns_cached *e;
	int code;

	while ((e = entry_find(c, owner, id)) && e->state != READY)
		pthread_cond_wait(&c->changed, &c->lock);
	if (!e) {
		UNS_TRY_ALLOC(e = entry_add(c, owner, id), err);
		code = fill_entry(c, e, size, fill, ctx, err);
		if (code < 0) {
			entry_remove(c, e);
			return code;
		}
		e->state = READY;
		pthread_cond_broadcast(&c->changed);
	}
	TAILQ_REMOVE(&c->by_use, e, by_use);
	TAILQ_INSERT_TAIL(&c->by_use, e, by_use);
	e->n_pins++;
	*out = e;
	return 0;
}

int uns_cache_get(struct uns_cache *c, const void *owner, struct uns_cache_id id, uint64_t size, uns_cache_fill *fill,
		  void *ctx, struct uns_cached **out, struct uns_err *err)
{
	int code;

	pthread_mutex_lock(&c->lock);
	code = get_locked(c, owner, id, size, fill, ctx, out, err);
	cache_unlock(c);
	return code;
}

void uns_cache_put(struct uns_cache *c, struct uns_cached *e)
{
	pthread_mutex_lock(&c->lock);
	if (--e->n_pins == 0)
		pthread_cond_broadcast(&c->changed);
	cache_unlock(c);
}

void uns_cache_drop(struct uns_cache *c, const void *owner)
{
	struct uns_cached *e, *newer;

	pthread_mutex_lock(&c->lock);
	for (e = TAILQ_FIRST(&c->by_use); e; e = newer) {
		newer = TAILQ_NEXT(e, by_use);
		if (e->owner != owner)
			continue;
		table_remove(c, e);
		e->dropped = e->state == MOVING; /* then the thread that moves it buries it */
		if (!e->dropped)
			entry_bury(c, e);
	}
	cache_unlock(c);
}

/* -- bytes: the entry is the caller's (filling) or pinned, so no lock -- */

int uns_cached_write(struct uns_cached *e, const void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	if (!uns_inside(off, len, e->size))
		return uns_fail(err, -EBADMSG, "decoded data is larger than expected");
	if (!e->mem)
		return uns_spill_write(e->cache->dir, e->fd, buf, len, off, err);
	memcpy(e->mem + off, buf, len);
	return 0;
}

int uns_cached_map(struct uns_cached *e, uint8_t **out, struct uns_err *err)
{
	if (!e->mem && !e->map) {
		UNS_TRY(uns_spill_map(e->cache->dir, e->fd, e->size, &e->map, err));
		e->map_bytes = e->size;
	}
	*out = e->mem ? e->mem : e->map;
	return 0;
}

void uns_cached_settle(struct uns_cached *e, uint64_t base_bytes, uint64_t used_bytes)
{
	struct uns_cache *c = e->cache;

	if (e->map)
		uns_spill_unmap(e->map, e->map_bytes);
	e->map = NULL;
	if (e->mem && used_bytes < e->size)
		mem_shrink(e, used_bytes);
	pthread_mutex_lock(&c->lock);
	if (e->mem)
		count_mem(c, used_bytes, e->size);
	else
		count_spill(c, used_bytes, e->size);
	e->size = used_bytes;
	e->base = base_bytes;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

static int cached_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_cached *e = self;

	if (!e->mem)
		return uns_spill_read(e->cache->dir, e->fd, buf, len, off, err);
	memcpy(buf, e->mem + off, len);
	return 0;
}

void uns_cached_once(struct uns_cached *e)
{
	e->once = true;
}

struct uns_reader uns_reader_of_cached(struct uns_cached *e, uint64_t written_bytes)
{
	return (struct uns_reader){ cached_pread, e, written_bytes };
}

int uns_cached_read(struct uns_cached *e, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	uint64_t at;

	if (!uns_u64_add(e->base, off, &at) || !uns_inside(at, len, e->size))
		return uns_fail(err, -EBADMSG, "bytes %llu+%zu pass the end of a decoded piece",
				(unsigned long long)off, len);
	if (at + len == e->size)
		atomic_store_explicit(&e->read_to_end, true, memory_order_relaxed);
	return cached_pread(e, buf, len, at, err);
}

const uint8_t *uns_cached_bytes(const struct uns_cached *e)
{
	return e->mem ? e->mem + e->base : NULL;
}
