/* What each directory of SOURCE is, and whether that is still so. Run-level directories are polled
 * (notification says nothing on network file systems): an answer holds for recheck_ns, then the
 * directory's files are compared by identity. */
#include "session/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/path.h"
#include "facts/siblings.h"

enum {
	MAX_DEPTH = 4, /* of a checkpoint's own sub-directories */
	FRESH_S = 5,   /* a directory changed so lately may change again within the same mtime */
};

/* What examining a directory finds, before it is compared with what was known. */
struct examined {
	const struct uns_format *format;
	bool begun, still_plain;
	struct watched watched;
	struct uns_stat stat;
	uint64_t generation, source_generation, own_generation;
	struct facts_seen facts;
	struct uns_identity state_id;
	bool state_whole;
	int64_t newest_ns, newest_file_ns; /* of any change; of what any file holds */
	uint64_t source_bytes;
};

/* Without the device's number, which is another at each mount of NFS, btrfs or an overlay and on each host:
 * inode numbers and memos are made of generations, and stay. The change time stands for it. */
static void examined_add(struct examined *f, const char *name, const struct uns_stat *st)
{
	const struct uns_identity *id = &st->id;
	int64_t changed = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
	uint64_t h = uns_hash_str(f->generation, name);

	h = uns_hash_u64(h, id->ino);
	h = uns_hash_u64(h, (uint64_t)id->mtime_ns);
	h = uns_hash_u64(h, (uint64_t)id->ctime_ns);
	if (st->kind == UNS_KIND_FILE) {
		h = uns_hash_u64(h, id->size);
		f->source_bytes += id->size;
		if (id->mtime_ns > f->newest_file_ns)
			f->newest_file_ns = id->mtime_ns;
	}
	f->generation = h;
	if (changed > f->newest_ns)
		f->newest_ns = changed;
}

/* Each entry of the directory. Its own times are left out of the generation (a file that comes or goes
 * shows by its name), but count as a change for `settle`. */
static int add_directory(struct uns_capture *capture, struct uns_arena *arena, const char *path,
			 struct examined *f, int depth, struct uns_err *err)
{
	const struct uns_listing *list;
	struct uns_stat st;
	const char *child;
	size_t i;

	UNS_TRY(uns_capture_list(capture, path, &list, err));
	for (i = 0; i < list->n; i++) {
		child = uns_path_join(arena, path, list->v[i].name);
		if (!child)
			return uns_oom(err);
		if (uns_capture_stat(capture, child, &st, NULL) < 0)
			continue;
		examined_add(f, list->v[i].name, &st);
		if (st.kind == UNS_KIND_DIR && list->v[i].kind == UNS_KIND_DIR && depth < MAX_DEPTH)
			UNS_TRY(add_directory(capture, arena, child, f, depth + 1, err));
	}
	return 0;
}

/* Old enough for its times to show any change from now on. */
static bool is_old(const struct uns_identity *id)
{
	return (uns_wall_ns() - id->mtime_ns) / 1000000000 > FRESH_S;
}

/* The file is read again only where it may be another than the last time. */
static bool state_is_whole(const struct place *place, struct uns_capture *capture,
			   struct uns_arena *arena, struct examined *f)
{
	const char *path = uns_path_join(arena, place->path, "trainer_state.json");
	struct uns_stat st;
	int whole;

	if (!path || uns_capture_stat(capture, path, &st, NULL) < 0)
		return false;
	if (uns_identity_equal(&st.id, &place->state_id) && is_old(&st.id))
		whole = place->state_whole;
	else
		whole = siblings_state_whole(uns_capture_root(capture), arena, place->path);
	if (whole >= 0) {
		f->state_id = st.id;
		f->state_whole = whole;
	}
	return whole > 0;
}

static void add_beside(void *ctx, const char *name, const struct uns_stat *st)
{
	struct examined *f = ctx;

	if (st)
		examined_add(f, name, st);
	else
		f->generation = uns_hash_str(f->generation, name);
}

/* Which files that end a save are older than the checkpoint's own (model/save_times.h). No more than that: they
 * are written again by each later save of the run. */
static int add_marks(const struct place *place, struct uns_capture *capture, struct uns_arena *arena,
		     struct examined *f, struct uns_err *err)
{
	const char *const *name, *dir = place->path, *path;
	struct uns_stat st;
	unsigned up;

	for (up = 0; f->format->marks && up < f->format->marks_up && *dir; up++) {
		dir = uns_path_parent(arena, dir);
		for (name = f->format->marks; dir && *name; name++) {
			path = uns_path_join(arena, dir, *name);
			if (!path)
				return uns_oom(err);
			if (uns_capture_stat(capture, path, &st, NULL) == 0 &&
			    st.id.mtime_ns < f->newest_file_ns)
				f->generation = uns_hash_str(f->generation, *name);
		}
		if (!dir)
			return uns_oom(err);
	}
	return 0;
}

/* Files beside the checkpoint that its views may borrow or learn from. */
static int add_surroundings(const struct place *place, struct uns_capture *capture,
			    struct uns_arena *arena, struct examined *f, struct uns_err *err)
{
	int64_t newest = f->newest_ns; /* what happens beside it does not unsettle it */
	uint64_t bytes = f->source_bytes;

	UNS_TRY(siblings_borrowed(capture, arena, place->path, add_beside, f, err));
	/* A checkpoint with its own trainer_state.json does not change when its run saves the next one. */
	if (!state_is_whole(place, capture, arena, f))
		UNS_TRY(siblings_telling(capture, arena, place->path, add_beside, f, err));
	f->newest_ns = newest;
	f->source_bytes = bytes;
	return 0;
}

static const struct uns_format *probe(const struct uns_directory *dir)
{
	const struct uns_format *best = NULL;
	int sure = 0, answer;
	size_t i;

	for (i = 0; uns_formats[i]; i++) {
		if (!uns_formats[i]->probe)
			continue;
		answer = uns_formats[i]->probe(dir);
		if (answer > sure) {
			sure = answer;
			best = uns_formats[i];
		}
	}
	return best;
}

/* -- plain directories -- */

static bool begun(const struct uns_directory *dir)
{
	size_t i;

	for (i = 0; uns_formats[i]; i++)
		if (uns_formats[i]->begun && uns_formats[i]->begun(dir))
			return true;
	return false;
}

static bool watched_changed(const struct watched *w, struct uns_capture *capture)
{
	struct uns_stat st;
	size_t i;

	for (i = 0; i < w->n; i++)
		if (uns_capture_stat(capture, w->v[i].path, &st, NULL) < 0 ||
		    !uns_identity_equal(&st.id, &w->v[i].id) || !is_old(&st.id))
			return true;
	return false;
}

/* A plain directory whose entries have not changed for a while is still plain: listing it again would
 * cost as much as it is large. So is it only while those below it have not changed either that a format
 * looked into: shards may arrive there. */
static bool still_plain(const struct place *place, struct uns_capture *capture)
{
	const struct uns_identity *now = &uns_capture_top(capture)->id;

	return place->known && !place->format && !place->begun &&
	       uns_identity_equal(&place->stat.id, now) && is_old(now) &&
	       !watched_changed(&place->watched, capture);
}

/* Watch every directory below `path` that a format has listed in this capture. */
static int watch(struct uns_capture *capture, const char *path, struct watched *w,
		 struct uns_err *err)
{
	const char *listed;
	struct uns_stat st;
	size_t at = 0;

	while ((listed = uns_capture_listed(capture, &at, &st))) {
		if (strcmp(listed, path) == 0 || !uns_path_within(listed, path))
			continue;
		if (!UNS_ARENA_ROOM(&w->arena, w->v, w->n, w->cap) ||
		    !(w->v[w->n].path = uns_arena_str(&w->arena, listed)))
			return uns_oom(err);
		w->v[w->n++].id = st.id;
	}
	return 0;
}

/* When something in a directory that has begun, or below it where a format looked, last changed. */
static int find_newest(struct uns_capture *capture, const char *path, struct examined *f,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct examined of = { .newest_ns = f->stat.id.ctime_ns };

	int code = uns_capture_fill(capture, 1, NULL);

	if (code == 0)
		code = add_directory(capture, &arena, path, &of, MAX_DEPTH - 1, NULL);
	f->newest_ns =
		of.newest_ns; /* an entry that cannot be read does not keep the directory from being shown */
	return code == -ENOMEM ? uns_oom(err) : 0;
}

static int add_plain(const struct uns_directory *dir, struct examined *f, struct uns_err *err)
{
	f->begun = *dir->path && begun(dir);
	UNS_TRY(watch(dir->capture, dir->path, &f->watched, err));
	return f->begun ? find_newest(dir->capture, dir->path, f, err) : 0;
}

/* -- checkpoints -- */

/* With the facts that the store has about it. */
static void end_generation(struct place_table *t, const struct place *place, struct examined *f)
{
	f->source_generation = f->generation = uns_hash_end(f->generation);
	f->facts = place->facts;
	store_digest(t->store, place->path, &f->facts);
	if (f->facts.digest)
		f->generation = uns_hash_end(uns_hash_u64(f->generation, f->facts.digest));
}

/* A checkpoint's generation, out of everything that its views may be made of. */
static int add_generation(struct place_table *t, const struct place *place,
			  struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = place->path;

	UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	f->newest_ns = f->stat.id.ctime_ns;
	f->generation = uns_hash_str(f->generation, f->format->name);
	UNS_TRY(add_directory(capture, &arena, path, f, 0, err));
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_marks(place, capture, &arena, f, err));
	UNS_TRY(add_surroundings(place, capture, &arena, f, err));
	end_generation(t, place, f);
	return 0;
}

/* -- checkpoints that are one file -- */

static bool has_ending(const struct uns_format *format, const char *path)
{
	const char *const *ending = format->file_endings;

	for (; ending && *ending; ending++)
		if (uns_str_ends(path, *ending))
			return true;
	return false;
}

bool places_may_be_file(const char *path)
{
	size_t i;

	for (i = 0; uns_formats[i]; i++)
		if (has_ending(uns_formats[i], path))
			return true;
	return false;
}

static int probe_file(const struct uns_root *root, const char *path, const struct uns_format **out,
		      struct uns_err *err)
{
	int mine = 0;
	size_t i;

	*out = NULL;
	for (i = 0; uns_formats[i] && !mine; i++) {
		if (!has_ending(uns_formats[i], path))
			continue;
		UNS_TRY(mine = uns_formats[i]->probe_file(root, path, err));
		if (mine)
			*out = uns_formats[i];
	}
	return 0;
}

static int look_at_file(struct place_table *t, const struct place *place,
			struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	if (place->known && uns_identity_equal(&place->stat.id, &f->stat.id) && is_old(&f->stat.id))
		f->format = place->format;
	else
		UNS_TRY(probe_file(t->root, place->path, &f->format, err));
	if (!f->format)
		return 0;
	f->generation = uns_hash_str(f->generation, f->format->name);
	examined_add(f, uns_path_name(place->path), &f->stat);
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_surroundings(place, capture, &arena, f, err));
	end_generation(t, place, f);
	return uns_capture_fault(capture, err);
}

static int look(struct place_table *t, const struct place *place, struct uns_capture *capture,
		struct examined *f, struct uns_err *err)
{
	struct uns_directory dir = { .root = t->root, .path = place->path, .capture = capture };

	f->stat = *uns_capture_top(capture);
	if (f->stat.kind == UNS_KIND_FILE)
		return look_at_file(t, place, capture, f, err);
	if (still_plain(place, capture)) {
		f->still_plain = true;
		return 0;
	}
	if (place->format) /* still one, most likely: its names and stats at one go */
		UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	UNS_TRY(uns_capture_list(capture, place->path, &dir.list, err));
	f->format = probe(&dir);
	UNS_TRY(f->format ? add_generation(t, place, capture, f, err) : add_plain(&dir, f, err));
	return uns_capture_fault(capture, err);
}

/* *capture is what that was made of, where it is a checkpoint. */
static int examine(struct place_table *t, const struct place *place, struct examined *f,
		   struct uns_capture **capture, struct uns_err *err)
{
	int code;

	*f = (struct examined){ .generation = UNS_HASH_INIT };
	*capture = NULL;
	UNS_TRY(uns_capture_new_of(t->root, place->path, t->hidden, places_may_be_file(place->path),
				   capture, err));
	code = look(t, place, *capture, f, err);
	if (code < 0 || !f->format) {
		uns_capture_free(*capture);
		*capture = NULL;
	}
	if (code < 0)
		uns_arena_fini(&f->watched.arena);
	return code;
}

/* -- places -- */

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

static void place_free(struct place *place)
{
	if (!place)
		return;
	verdicts_free(place);
	uns_capture_free(place->capture);
	uns_arena_fini(&place->watched.arena);
	free(place->open_why);
	free(place->path);
	free(place);
}

/* -- the table; lock held for all of these -- */

/* The table's reference goes to the caller. */
static struct place *table_remove(struct place_table *t, struct place *place)
{
	if (uns_map_get(&t->map, place->path) != place)
		return NULL;
	uns_map_del(&t->map, place->path);
	place->replaced = true;
	return place;
}

static bool table_add(struct place_table *t, struct place *place)
{
	if (!uns_map_put(&t->map, place->path, place, NULL))
		return false;
	place->refs++;
	return true;
}

static bool is_fresh(const struct place_table *t, const struct place *place)
{
	return place->known && uns_now_ns() - place->checked_ns < t->recheck_ns;
}

/* The place, with a reference: fresh, or busy for the caller alone. NULL = out of memory. */
static struct place *place_acquire(struct place_table *t, const char *path, bool *fresh)
{
	struct place *place;

	while ((place = uns_map_get(&t->map, path)) && place->busy)
		pthread_cond_wait(t->changed, t->lock); /* it may have been replaced meanwhile */
	if (!place) {
		place = place_new(path);
		if (!place || !table_add(t, place)) {
			place_free(place);
			return NULL;
		}
	}
	place->refs++;
	*fresh = is_fresh(t, place);
	place->busy = !*fresh;
	return place;
}

static bool changed_lately(const struct place_table *t, int64_t newest_ns)
{
	int64_t age_ns = uns_wall_ns() - newest_ns;

	return age_ns < t->settle_ns && age_ns > -t->settle_ns;
}

/* What was made of a checkpoint while it was young is not kept: a write may have been going on that had
 * changed its times before, and does not change them again. */
static bool has_settled(const struct place_table *t, const struct place *place,
			const struct examined *f)
{
	return place->young && !changed_lately(t, f->newest_ns);
}

static bool same_as_known(const struct place_table *t, const struct place *place,
			 const struct examined *f)
{
	return place->known && place->format == f->format && !has_settled(t, place, f) &&
	       (f->still_plain || place->begun == f->begun) && place->generation == f->generation &&
	       uns_identity_equal(&place->stat.id, &f->stat.id) && place->stat.mode == f->stat.mode;
}

static void place_fill(const struct place_table *t, struct place *place, const struct examined *f)
{
	place->young = f->format && changed_lately(t, f->newest_ns);
	place->format = f->format;
	place->begun = f->begun;
	place->generation = f->generation;
	place->source_generation = f->source_generation;
	place->own_generation = f->own_generation;
	place->stat = f->stat;
	place->source_bytes = f->source_bytes;
	place->known = true;
}

#define SWAP(a, b)                                                                                 \
	do {                                                                                       \
		__typeof__(a) swap_was = (a);                                                      \
		(a) = (b);                                                                         \
		(b) = swap_was;                                                                    \
	} while (0)

/* What may differ from one look to the next. Leaves in *f and *capture what is to be freed. */
static void place_update(struct place *place, struct examined *f, struct uns_capture **capture)
{
	place->facts = f->facts;
	place->state_id = f->state_id;
	place->state_whole = f->state_whole;
	if (!f->still_plain)
		SWAP(place->watched, f->watched);
	if (!place->capture_taken)
		SWAP(place->capture, *capture);
	__atomic_store_n(&place->newest_ns, f->newest_ns, __ATOMIC_RELAXED);
	place->checked_ns = uns_now_ns();
}

/* A place is constant once known, but for when it was looked at and what was concluded from it: where
 * what was examined differs, `fresh` takes its place. Returns the one that it is now. */
static struct place *place_renew(struct place_table *t, struct place *place, struct place **fresh,
				 const struct examined *f, struct place **old)
{
	struct place *now = place;

	if (*fresh) {
		*old = table_remove(t, place);
		if (!table_add(t, *fresh))
			return NULL;
		now = UNS_TAKE(*fresh);
		now->refs++;
	}
	if (!now->known)
		place_fill(t, now, f);
	return now;
}

/* -- the same without it -- */

/* Give n references back. */
static void unref(struct place_table *t, struct place *place, unsigned n)
{
	bool last;

	pthread_mutex_lock(t->lock);
	place->refs -= n;
	last = !place->refs;
	pthread_mutex_unlock(t->lock);
	if (last)
		place_free(place);
}

/* Examined: the table is brought up to date, and what was made of an older place is let go of. The
 * caller's reference moves from `place` to *out. */
static int conclude(struct place_table *t, struct place *place, int code, struct examined *f,
		    struct uns_capture *capture, struct place **out, struct uns_err *err)
{
	struct place *fresh = NULL, *now = NULL, *old = NULL;

	if (code == 0 && place->known && !same_as_known(t, place, f) &&
	    !(fresh = place_new(place->path)))
		code = uns_oom(err);
	pthread_mutex_lock(t->lock);
	place->busy = false;
	if (code == 0) {
		now = place_renew(t, place, &fresh, f, &old);
		code = now ? 0 : uns_oom(err);
	}
	if (now)
		place_update(now, f, &capture);
	else if (!old) /* it has gone, or cannot be looked at */
		old = table_remove(t, place);
	pthread_cond_broadcast(t->changed);
	pthread_mutex_unlock(t->lock);

	if (old)
		t->forget(t->ctx, old);
	if (now != place || old)
		unref(t, place, (now != place) + (old != NULL));
	place_free(fresh);
	uns_capture_free(capture);
	uns_arena_fini(&f->watched.arena);
	*out = now;
	return code;
}

static int find_place(struct place_table *t, const char *path, struct place **out,
		      struct uns_err *err)
{
	struct uns_capture *capture = NULL;
	struct examined found;
	struct place *place;
	bool fresh;
	int code;

	pthread_mutex_lock(t->lock);
	place = place_acquire(t, path, &fresh);
	pthread_mutex_unlock(t->lock);
	if (!place)
		return uns_oom(err);
	*out = place;
	if (fresh)
		return 0;
	code = examine(t, place, &found, &capture, err);
	return conclude(t, place, code, &found, capture, out, err);
}

int places_get(struct place_table *t, const char *path, struct place **out, struct uns_err *err)
{
	UNS_TRY(find_place(t, path, out, err));
	if ((*out)->format || (*out)->stat.kind == UNS_KIND_DIR)
		return 0;
	places_put(t, *out);
	*out = NULL;
	return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
}

struct place *places_known(struct place_table *t, const char *path)
{
	struct place *place;

	pthread_mutex_lock(t->lock);
	place = uns_map_get(&t->map, path);
	if (place && !place->busy && is_fresh(t, place) && place->itself_ns &&
	    uns_now_ns() - place->itself_ns < t->recheck_ns)
		place->refs++;
	else
		place = NULL;
	pthread_mutex_unlock(t->lock);
	return place;
}

void places_seen_itself(struct place_table *t, struct place *place)
{
	pthread_mutex_lock(t->lock);
	place->itself_ns = uns_now_ns();
	pthread_mutex_unlock(t->lock);
}

void places_put(struct place_table *t, struct place *place)
{
	if (place)
		unref(t, place, 1);
}

void places_suspect(struct place_table *t, struct place *place)
{
	pthread_mutex_lock(t->lock);
	place->checked_ns = uns_now_ns() - t->recheck_ns;
	pthread_mutex_unlock(t->lock);
}

void places_fini(struct place_table *t)
{
	size_t at = 0;
	void *place;

	while (uns_map_next(&t->map, &at, NULL, &place)) {
		t->forget(t->ctx, place);
		place_free(place);
	}
	uns_map_fini(&t->map);
}

/* `was`: a copy, because somebody else may be examining the place. */
static int capture_again(struct place_table *t, const struct place *was, struct uns_capture **out,
			 struct uns_err *err)
{
	struct examined now;

	UNS_TRY(examine(t, was, &now, out, err));
	uns_arena_fini(&now.watched.arena);
	if (now.format == was->format && now.generation == was->generation)
		return 0;
	uns_capture_free(*out);
	*out = NULL;
	return uns_fail(err, -ESTALE, "%s has changed", was->path);
}

int places_capture(struct place_table *t, struct place *place, struct uns_capture **out,
		   struct uns_err *err)
{
	struct place was;
	int code;

	pthread_mutex_lock(t->lock);
	was = *place;
	*out = UNS_TAKE(place->capture);
	place->capture_taken = true;
	pthread_mutex_unlock(t->lock);
	if (*out)
		return 0;
	code = capture_again(t, &was, out, err);
	if (code < 0)
		places_suspect(t, place);
	return code;
}

/* -- questions -- */

bool places_unsettled(const struct place_table *t, const struct place *place)
{
	return changed_lately(t, __atomic_load_n(&place->newest_ns, __ATOMIC_RELAXED));
}

bool places_in_the_making(const struct place_table *t, const struct place *place)
{
	return place->begun && places_unsettled(t, place);
}

bool places_hide(const struct place_table *t, const char *path)
{
	return t->hidden && *t->hidden && uns_path_within(path, t->hidden);
}
