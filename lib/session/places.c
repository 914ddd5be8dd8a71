/* What each directory of SOURCE is, and whether that is still so. Run-level directories are polled
 * (notification says nothing on network file systems): an answer holds for recheck_ns, then the
 * directory's files are compared by identity. */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/path.h"

enum {
	MAX_DEPTH = 4, /* of a checkpoint's own sub-directories */
	FRESH_S = 5,   /* a directory changed so lately may change again within the same mtime */
};

/* What examining a directory finds, before it is compared with what was known. */
struct finding {
	const struct uns_format *format;
	struct uns_stat stat;
	uint64_t generation, source_generation, own_generation;
	struct facts_seen facts;
	int64_t newest_ns;
	uint64_t source_bytes;
};

static void finding_add(struct finding *f, const char *name, const struct uns_stat *st)
{
	const struct uns_identity *id = &st->id;
	int64_t changed = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
	uint64_t h = uns_hash_str(f->generation, name);

	h = uns_hash_u64(h, id->dev);
	h = uns_hash_u64(h, id->ino);
	h = uns_hash_u64(h, (uint64_t)id->mtime_ns);
	h = uns_hash_u64(h, (uint64_t)id->ctime_ns);
	if (st->kind == UNS_KIND_FILE) {
		h = uns_hash_u64(h, id->size);
		f->source_bytes += id->size;
	}
	f->generation = h;
	if (changed > f->newest_ns)
		f->newest_ns = changed;
}

/* A directory's own times are left out of the generation (a file that comes or goes shows by its
 * name), but count as a change for `settle`. */
static int add_directory(struct unshard *u, struct uns_arena *arena, const char *path,
			 struct finding *f, int depth, struct uns_err *err)
{
	struct uns_listing list;
	struct uns_stat st;
	const char *child;
	size_t i;

	UNS_TRY(uns_root_list(u->root, path, arena, &list, err));
	for (i = 0; i < list.n; i++) {
		child = uns_path_join(arena, path, list.v[i].name);
		if (!child)
			return uns_oom(err);
		if (session_hides(u, child) || uns_root_stat(u->root, child, true, &st, NULL) < 0)
			continue;
		finding_add(f, list.v[i].name, &st);
		if (st.kind == UNS_KIND_DIR && list.v[i].kind == UNS_KIND_DIR && depth < MAX_DEPTH)
			UNS_TRY(add_directory(u, arena, child, f, depth + 1, err));
	}
	return 0;
}

static void add_file(struct unshard *u, const char *path, struct finding *f)
{
	struct uns_stat st;

	if (path && uns_root_stat(u->root, path, true, &st, NULL) == 0)
		finding_add(f, uns_path_name(path), &st); /* the same from whichever SOURCE */
}

/* What stands in for a trainer_state.json that is not there, or was cut: siblings' and the run's. */
static void add_training(struct unshard *u, struct uns_arena *arena, const char *path,
			 struct finding *f)
{
	static const char *const names[] = { "trainer_state.json", "training_args.json",
					     "training_args.bin" };
	struct siblings s;
	size_t i;

	if (training_state_whole(u, arena, path) ||
	    training_siblings(u, arena, path, &s, NULL) < 0 || !s.run)
		return;
	for (i = 0; i < s.n; i++)
		f->generation = uns_hash_u64(f->generation, s.number[i]);
	for (i = 0; i < s.n_near; i++)
		add_file(u, s.near[i].state, f);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		add_file(u, uns_path_join(arena, s.run, names[i]), f);
}

/* Files beside the checkpoint that its views may borrow or learn from. */
static void add_surroundings(struct unshard *u, struct uns_arena *arena, const char *path,
			     struct finding *f)
{
	static const char *const names[] = { "config.json", "generation_config.json",
					     "tokenizer.json", "tokenizer_config.json",
					     "adapter_config.json" };
	const char *run = uns_path_parent(arena, path), *child;
	int64_t newest = f->newest_ns; /* what happens beside it does not unsettle it */
	uint64_t bytes = f->source_bytes;
	struct uns_stat st;
	size_t i;

	for (i = 0; *path && run && i < sizeof(names) / sizeof(*names); i++) {
		child = uns_path_join(arena, run, names[i]);
		if (child && uns_root_stat(u->root, child, true, &st, NULL) == 0)
			finding_add(f, names[i], &st);
	}
	add_training(u, arena, path, f);
	f->newest_ns = newest;
	f->source_bytes = bytes;
}

static const struct uns_format *probe(const struct uns_directory *dir)
{
	const struct uns_format *best = NULL;
	int sure = 0, answer;
	size_t i;

	for (i = 0; uns_formats[i]; i++) {
		answer = uns_formats[i]->probe(dir);
		if (answer > sure) {
			sure = answer;
			best = uns_formats[i];
		}
	}
	return best;
}

/* A plain directory whose entries have not changed for a while is still plain: listing it again would
 * cost as much as it is large. Its times tell, unless they are too fresh for their granularity. */
static bool still_plain(const struct place *place, const struct uns_stat *now)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return place->known && !place->format &&
	       uns_identity_equal(&place->stat.id, &now->id) &&
	       (int64_t)t.tv_sec - now->id.mtime_ns / 1000000000 > FRESH_S;
}

static int examine(struct unshard *u, const struct place *place, struct finding *f,
		   struct uns_err *err)
{
	const char *path = place->path;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_directory dir = { .root = u->root, .path = path };
	struct uns_listing list;

	*f = (struct finding){ .generation = UNS_HASH_INIT };
	UNS_TRY(uns_root_stat(u->root, path, true, &f->stat, err));
	if (f->stat.kind != UNS_KIND_DIR)
		return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
	if (still_plain(place, &f->stat))
		return 0;
	UNS_TRY(uns_root_list(u->root, path, &arena, &list, err));
	dir.list = &list;
	f->format = probe(&dir);
	if (!f->format)
		return 0;
	f->newest_ns = f->stat.id.ctime_ns;
	f->generation = uns_hash_str(f->generation, f->format->name);
	UNS_TRY(add_directory(u, &arena, path, f, 0, err));
	f->own_generation = uns_hash_end(f->generation);
	add_surroundings(u, &arena, path, f);
	f->source_generation = f->generation = uns_hash_end(f->generation);
	f->facts = place->facts;
	meta_digest(u, path, &f->facts);
	if (f->facts.digest)
		f->generation = uns_hash_end(uns_hash_u64(f->generation, f->facts.digest));
	return 0;
}

static void verdicts_free(struct place *place)
{
	struct verdict *v = place->verdict, *next;

	for (; v; v = next) {
		next = v->next;
		free(v->why);
		free(v);
	}
	place->verdict = NULL;
}

static struct place *place_new(const char *path)
{
	struct place *place = calloc(1, sizeof(*place));

	if (place && !(place->path = strdup(path))) {
		free(place);
		return NULL;
	}
	if (place)
		place->step = place->world_size = UNS_UNKNOWN;
	return place;
}

static void place_unref(struct place *place)
{
	if (--place->refs)
		return;
	verdicts_free(place);
	free(place->open_why);
	free(place->path);
	free(place);
}

/* -- the table; lock held for all of these -- */

/* Out of the table: who holds it goes on with it, open files keep their snapshot. */
static void place_drop(struct unshard *u, struct place *place)
{
	snapshot_detach(u, place);
	if (uns_map_get(&u->places, place->path) != place)
		return;
	uns_map_del(&u->places, place->path);
	place_unref(place);
}

static bool table_add(struct unshard *u, struct place *place)
{
	if (!uns_map_put(&u->places, place->path, place, NULL))
		return false;
	place->refs++;
	return true;
}

/* The place, with a reference: fresh, or busy for the caller alone. NULL = out of memory. */
static struct place *place_acquire(struct unshard *u, const char *path, bool *fresh)
{
	struct place *place;

	while ((place = uns_map_get(&u->places, path)) && place->busy)
		pthread_cond_wait(&u->changed, &u->lock); /* it may have been replaced meanwhile */
	if (!place) {
		place = place_new(path);
		if (!place || !table_add(u, place)) {
			if (place)
				free(place->path);
			free(place);
			return NULL;
		}
	}
	place->refs++;
	*fresh = place->known && session_now_ns() - place->checked_ns < u->recheck_ns;
	place->busy = !*fresh;
	return place;
}

static bool same_finding(const struct place *place, const struct finding *f)
{
	return place->known && place->format == f->format &&
	       place->generation == f->generation &&
	       uns_identity_equal(&place->stat.id, &f->stat.id) &&
	       place->stat.mode == f->stat.mode;
}

/* A place is constant once known, but for when it was looked at and what was concluded from it: where
 * the finding differs, a new place takes its place. Gives the caller's reference back. */
static struct place *place_renew(struct unshard *u, struct place *place, const struct finding *f)
{
	struct place *now = place;

	if (place->known && !same_finding(place, f)) {
		now = place_new(place->path);
		if (!now)
			return NULL;
		place_drop(u, place);
		if (!table_add(u, now)) {
			free(now->path);
			free(now);
			return NULL;
		}
		now->refs++;
		place_unref(place);
	}
	if (!now->known) {
		now->format = f->format;
		now->generation = f->generation;
		now->source_generation = f->source_generation;
		now->own_generation = f->own_generation;
		now->stat = f->stat;
		now->source_bytes = f->source_bytes;
		now->known = true;
	}
	now->facts = f->facts;
	__atomic_store_n(&now->newest_ns, f->newest_ns, __ATOMIC_RELAXED);
	now->checked_ns = session_now_ns();
	return now;
}

int place_get(struct unshard *u, const char *path, struct place **out, struct uns_err *err)
{
	struct place *place, *now = NULL;
	struct finding found;
	bool fresh;
	int code;

	pthread_mutex_lock(&u->lock);
	place = place_acquire(u, path, &fresh);
	pthread_mutex_unlock(&u->lock);
	if (!place)
		return uns_oom(err);
	*out = place;
	if (fresh)
		return 0;

	code = examine(u, place, &found, err);

	pthread_mutex_lock(&u->lock);
	place->busy = false;
	if (code == 0) {
		now = place_renew(u, place, &found);
		code = now ? 0 : uns_oom(err);
	}
	if (!now) {
		place_drop(u, place); /* it has gone, or cannot be looked at */
		place_unref(place);
	}
	pthread_cond_broadcast(&u->changed);
	pthread_mutex_unlock(&u->lock);
	*out = now;
	return code;
}

void place_put(struct unshard *u, struct place *place)
{
	if (!place)
		return;
	pthread_mutex_lock(&u->lock);
	place_unref(place);
	pthread_mutex_unlock(&u->lock);
}

void place_suspect(struct unshard *u, struct place *place)
{
	pthread_mutex_lock(&u->lock);
	place->checked_ns = session_now_ns() - u->recheck_ns;
	pthread_mutex_unlock(&u->lock);
}

bool place_unsettled(const struct unshard *u, const struct place *place)
{
	struct timespec t;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &t);
	age = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec -
	      __atomic_load_n(&place->newest_ns, __ATOMIC_RELAXED);
	return age < u->settle_ns && age > -u->settle_ns;
}
