/* Catalogs in memory: built when asked for, shared, evicted oldest first when nobody holds them. */
#include "session/session.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"

static void snapshot_free(struct snapshot *snap)
{
	struct shown *shown = snap->shown, *next;

	for (; shown; shown = next) {
		next = shown->next;
		uns_vtree_fini(&shown->tree);
		free(shown->attr);
		free(shown);
	}
	uns_backing_free(snap->backing);
	uns_catalog_free(snap->cat);
	uns_root_close(snap->model);
	uns_arena_fini(&snap->arena);
	free(snap);
}

/* -- the LRU; lock held for all of these -- */

static void lru_unlink(struct unshard *u, struct snapshot *snap)
{
	*(snap->newer ? &snap->newer->older : &u->newest) = snap->older;
	*(snap->older ? &snap->older->newer : &u->oldest) = snap->newer;
	snap->newer = snap->older = NULL;
}

static void lru_push(struct unshard *u, struct snapshot *snap)
{
	snap->older = u->newest;
	*(u->newest ? &u->newest->newer : &u->oldest) = snap;
	u->newest = snap;
}

/* Out of the table; the caller frees it once the lock is dropped if nobody holds it. */
static void table_remove(struct unshard *u, struct snapshot *snap)
{
	lru_unlink(u, snap);
	u->snapshot_bytes -= snap->bytes;
	if (snap->place)
		snap->place->snap = NULL;
	snap->place = NULL;
}

static struct snapshot *evict(struct unshard *u)
{
	struct snapshot *snap, *newer, *dead = NULL;

	for (snap = u->oldest; snap && u->snapshot_bytes > u->opt.mem_bytes / 2; snap = newer) {
		newer = snap->newer;
		if (snap->refs)
			continue;
		table_remove(u, snap);
		snap->older = dead;
		dead = snap;
	}
	return dead;
}

static void free_chain(struct snapshot *dead)
{
	struct snapshot *next;

	for (; dead; dead = next) {
		next = dead->older;
		snapshot_free(dead);
	}
}

void snapshot_detach(struct unshard *u, struct place *place)
{
	struct snapshot *snap = place->snap;

	if (!snap)
		return;
	table_remove(u, snap);
	if (!snap->refs)
		snapshot_free(snap); /* closes descriptors: no I/O that waits */
}

void snapshot_put(struct unshard *u, struct snapshot *snap)
{
	struct snapshot *dead = NULL;

	if (!snap)
		return;
	pthread_mutex_lock(&u->lock);
	snap->refs--;
	if (!snap->place && !snap->refs)
		dead = snap; /* detached while it was held */
	else
		dead = evict(u);
	pthread_mutex_unlock(&u->lock);
	free_chain(dead);
}

static size_t bytes_of(const struct snapshot *snap)
{
	const struct shown *shown;
	size_t bytes = sizeof(*snap) + snap->arena.used_bytes;

	if (snap->cat)
		bytes += snap->cat->arena.used_bytes + snap->cat->n_pieces * 64;
	for (shown = snap->shown; shown; shown = shown->next)
		bytes += shown->tree.arena.used_bytes;
	return bytes;
}

void snapshot_account(struct unshard *u, struct snapshot *snap)
{
	size_t bytes = bytes_of(snap);

	if (snap->place)
		u->snapshot_bytes += bytes - snap->bytes;
	snap->bytes = bytes;
}

/* -- building -- */

int snapshot_open_catalog(struct unshard *u, const struct place *place,
			  const struct uns_format_options *options, struct uns_catalog *cat,
			  struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_directory dir = { .root = u->root, .path = place->path };
	struct uns_listing list;

	UNS_TRY(uns_root_list(u->root, place->path, &arena, &list, err));
	dir.list = &list;
	return place->format->open(&dir, options, cat, err);
}

/* From the store, else from the checkpoint's own metadata. */
static int find_catalog(struct unshard *u, const struct place *place, struct snapshot *snap,
			struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_format_options options;
	bool lasting = memo_allowed(place);

	if (memo_load_catalog(u, place, &snap->cat) == 0)
		return 0;
	UNS_TRY(uns_catalog_new(place->path, &snap->cat, err));
	options = units_options(u, place, &arena);
	UNS_TRY(snapshot_open_catalog(u, place, &options, snap->cat, err));
	if (lasting)
		memo_save_catalog(u, place, snap->cat);
	return 0;
}

static int snapshot_build(struct unshard *u, const struct place *place, struct snapshot **out,
			  struct uns_err *err)
{
	struct snapshot *snap = calloc(1, sizeof(*snap));
	int code;

	if (!snap)
		return uns_oom(err);
	code = find_catalog(u, place, snap, err);
	if (code == 0)
		code = companions_choose(u, snap, place->path, err);
	if (code == 0)
		code = uns_backing_new(u->engine, snap->cat, &snap->backing, err);
	if (code == 0)
		memo_load_crcs(u, place, snap);
	if (code < 0) {
		snapshot_free(snap);
		return code;
	}
	*out = snap;
	return 0;
}

/* Lock held. The place may have been replaced while the snapshot was built: then the snapshot belongs
 * to its caller alone. */
static struct snapshot *publish(struct unshard *u, struct place *place, struct snapshot *snap)
{
	snap->refs = 1;
	if (uns_map_get(&u->places, place->path) == place && !place->snap) {
		snap->place = place;
		place->snap = snap;
		place->finished = snap->cat->facts.finished;
		place->step = snap->cat->facts.step;
		place->world_size = snap->cat->facts.world_size;
		lru_push(u, snap);
		snapshot_account(u, snap);
	}
	return evict(u);
}

/* What is wrong with the moment, and not with the files, is not remembered: who asks again may get an
 * answer. */
static void remember_failure(struct place *place, const struct uns_err *err)
{
	const struct uns_finding f = uns_finding_of_err(err, UNS_SCOPE_ALL);

	if (!uns_code_is_finding(err->code))
		return;
	free(place->open_why);
	place->open_why = uns_finding_dup(&f);
}

static int build_for(struct unshard *u, struct place *place, struct snapshot **out,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct snapshot *snap = NULL, *dead = NULL;
	struct uns_err own = { .keep = &arena };
	int code = snapshot_build(u, place, &snap, &own);

	malloc_trim(0); /* parsing metadata leaves large holes */
	pthread_mutex_lock(&u->lock);
	if (code == 0)
		dead = publish(u, place, snap);
	else
		remember_failure(place, &own);
	place->building = false;
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	free_chain(dead);
	*out = snap;
	if (code < 0 && own.finding)
		return uns_fail_with(err, own.finding);
	return code < 0 ? uns_fail(err, code, "%s", own.text) : 0;
}

int snapshot_get(struct unshard *u, struct place *place, struct snapshot **out,
		 struct uns_err *err)
{
	struct snapshot *snap;
	int code = 0;

	pthread_mutex_lock(&u->lock);
	while (place->building)
		pthread_cond_wait(&u->changed, &u->lock);
	snap = place->snap;
	if (snap) {
		snap->refs++;
		lru_unlink(u, snap);
		lru_push(u, snap);
	} else if (place->open_why) {
		code = uns_fail_with(err, place->open_why);
	} else {
		place->building = true;
	}
	pthread_mutex_unlock(&u->lock);
	if (snap || code < 0) {
		*out = snap;
		return code;
	}
	return build_for(u, place, out, err);
}

int snapshot_note(struct snapshot *snap, const struct uns_finding *note, struct uns_err *err)
{
	const struct uns_finding *kept = uns_finding_copy(&snap->arena, note);

	if (!kept || !UNS_ARENA_ROOM(&snap->arena, snap->note, snap->n_notes, snap->cap_notes))
		return uns_oom(err);
	snap->note[snap->n_notes++] = *kept;
	return 0;
}
