/* What each directory of SOURCE is, and whether that is still so. Run-level directories are polled
 * (notification says nothing on network file systems): an answer holds for recheck_ns, then the
 * directory's files are compared by identity. */
#include "session/dir_records.h"

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
static bool state_is_whole(const struct dir_record *record, struct uns_capture *capture,
			   struct uns_arena *arena, struct examined *f)
{
	const char *path = uns_path_join(arena, record->path, "trainer_state.json");
	struct uns_stat st;
	int whole;

	if (!path || uns_capture_stat(capture, path, &st, NULL) < 0)
		return false;
	if (uns_identity_equal(&st.id, &record->state_id) && is_old(&st.id))
		whole = record->state_whole;
	else
		whole = siblings_state_whole(uns_capture_root(capture), arena, record->path);
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
static int add_marks(const struct dir_record *record, struct uns_capture *capture, struct uns_arena *arena,
		     struct examined *f, struct uns_err *err)
{
	const char *const *name, *dir = record->path, *path;
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
static int add_surroundings(const struct dir_record *record, struct uns_capture *capture,
			    struct uns_arena *arena, struct examined *f, struct uns_err *err)
{
	int64_t newest = f->newest_ns; /* what happens beside it does not unsettle it */
	uint64_t bytes = f->source_bytes;

	UNS_TRY(siblings_borrowed(capture, arena, record->path, add_beside, f, err));
	/* A checkpoint with its own trainer_state.json does not change when its run saves the next one. */
	if (!state_is_whole(record, capture, arena, f))
		UNS_TRY(siblings_telling(capture, arena, record->path, add_beside, f, err));
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
static bool still_plain(const struct dir_record *record, struct uns_capture *capture)
{
	const struct uns_identity *now = &uns_capture_top(capture)->id;

	return record->known && !record->format && !record->begun &&
	       uns_identity_equal(&record->stat.id, now) && is_old(now) &&
	       !watched_changed(&record->watched, capture);
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
static void end_generation(struct record_table *t, const struct dir_record *record, struct examined *f)
{
	f->source_generation = f->generation = uns_hash_end(f->generation);
	f->facts = record->facts;
	store_digest(t->store, record->path, &f->facts);
	if (f->facts.digest)
		f->generation = uns_hash_end(uns_hash_u64(f->generation, f->facts.digest));
}

/* A checkpoint's generation, out of everything that its views may be made of. */
static int add_generation(struct record_table *t, const struct dir_record *record,
			  struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const char *path = record->path;

	UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	f->newest_ns = f->stat.id.ctime_ns;
	f->generation = uns_hash_str(f->generation, f->format->name);
	UNS_TRY(add_directory(capture, &arena, path, f, 0, err));
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_marks(record, capture, &arena, f, err));
	UNS_TRY(add_surroundings(record, capture, &arena, f, err));
	end_generation(t, record, f);
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

bool records_may_be_file(const char *path)
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

static int look_at_file(struct record_table *t, const struct dir_record *record,
			struct uns_capture *capture, struct examined *f, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	if (record->known && uns_identity_equal(&record->stat.id, &f->stat.id) && is_old(&f->stat.id))
		f->format = record->format;
	else
		UNS_TRY(probe_file(t->root, record->path, &f->format, err));
	if (!f->format)
		return 0;
	f->generation = uns_hash_str(f->generation, f->format->name);
	examined_add(f, uns_path_name(record->path), &f->stat);
	f->own_generation = uns_hash_end(f->generation);
	UNS_TRY(add_surroundings(record, capture, &arena, f, err));
	end_generation(t, record, f);
	return uns_capture_fault(capture, err);
}

static int look(struct record_table *t, const struct dir_record *record, struct uns_capture *capture,
		struct examined *f, struct uns_err *err)
{
	struct uns_directory dir = { .root = t->root, .path = record->path, .capture = capture };

	f->stat = *uns_capture_top(capture);
	if (f->stat.kind == UNS_KIND_FILE)
		return look_at_file(t, record, capture, f, err);
	if (still_plain(record, capture)) {
		f->still_plain = true;
		return 0;
	}
	if (record->format) /* still one, most likely: its names and stats at one go */
		UNS_TRY(uns_capture_fill(capture, MAX_DEPTH, err));
	UNS_TRY(uns_capture_list(capture, record->path, &dir.list, err));
	f->format = probe(&dir);
	UNS_TRY(f->format ? add_generation(t, record, capture, f, err) : add_plain(&dir, f, err));
	return uns_capture_fault(capture, err);
}

/* *capture is what that was made of, where it is a checkpoint. */
static int examine(struct record_table *t, const struct dir_record *record, struct examined *f,
		   struct uns_capture **capture, struct uns_err *err)
{
	int code;

	*f = (struct examined){ .generation = UNS_HASH_INIT };
	*capture = NULL;
	UNS_TRY(uns_capture_new_of(t->root, record->path, t->hidden, records_may_be_file(record->path),
				   capture, err));
	code = look(t, record, *capture, f, err);
	if (code < 0 || !f->format) {
		uns_capture_free(*capture);
		*capture = NULL;
	}
	if (code < 0)
		uns_arena_fini(&f->watched.arena);
	return code;
}

/* -- records -- */

static void verdicts_free(struct dir_record *record)
{
	struct verdict *v = record->verdict, *next;

	for (; v; v = next) {
		next = v->next;
		free(v->why);
		free(v);
	}
	record->verdict = NULL;
}

static struct dir_record *record_new(const char *path)
{
	struct dir_record *record = calloc(1, sizeof(*record));

	if (record && !(record->path = strdup(path))) {
		free(record);
		return NULL;
	}
	if (record)
		record->step = record->world_size = UNS_UNKNOWN;
	return record;
}

static void record_free(struct dir_record *record)
{
	if (!record)
		return;
	verdicts_free(record);
	uns_capture_free(record->capture);
	uns_arena_fini(&record->watched.arena);
	free(record->open_why);
	free(record->path);
	free(record);
}

/* -- the table; lock held for all of these -- */

/* The table's reference goes to the caller. */
static struct dir_record *table_remove(struct record_table *t, struct dir_record *record)
{
	if (uns_map_get(&t->map, record->path) != record)
		return NULL;
	uns_map_del(&t->map, record->path);
	record->replaced = true;
	return record;
}

static bool table_add(struct record_table *t, struct dir_record *record)
{
	if (!uns_map_put(&t->map, record->path, record, NULL))
		return false;
	record->refs++;
	return true;
}

static bool is_fresh(const struct record_table *t, const struct dir_record *record)
{
	return record->known && uns_now_ns() - record->checked_ns < t->recheck_ns;
}

/* The record, with a reference: fresh, or busy for the caller alone. NULL = out of memory. */
static struct dir_record *record_acquire(struct record_table *t, const char *path, bool *fresh)
{
	struct dir_record *record;

	while ((record = uns_map_get(&t->map, path)) && record->busy)
		pthread_cond_wait(t->changed, t->lock); /* it may have been replaced meanwhile */
	if (!record) {
		record = record_new(path);
		if (!record || !table_add(t, record)) {
			record_free(record);
			return NULL;
		}
	}
	record->refs++;
	*fresh = is_fresh(t, record);
	record->busy = !*fresh;
	return record;
}

static bool changed_lately(const struct record_table *t, int64_t newest_ns)
{
	int64_t age_ns = uns_wall_ns() - newest_ns;

	return age_ns < t->settle_ns && age_ns > -t->settle_ns;
}

/* What was made of a checkpoint while it was young is not kept: a write may have been going on that had
 * changed its times before, and does not change them again. */
static bool has_settled(const struct record_table *t, const struct dir_record *record,
			const struct examined *f)
{
	return record->young && !changed_lately(t, f->newest_ns);
}

static bool same_as_known(const struct record_table *t, const struct dir_record *record,
			 const struct examined *f)
{
	return record->known && record->format == f->format && !has_settled(t, record, f) &&
	       (f->still_plain || record->begun == f->begun) && record->generation == f->generation &&
	       uns_identity_equal(&record->stat.id, &f->stat.id) && record->stat.mode == f->stat.mode;
}

static void record_fill(const struct record_table *t, struct dir_record *record, const struct examined *f)
{
	record->young = f->format && changed_lately(t, f->newest_ns);
	record->format = f->format;
	record->begun = f->begun;
	record->generation = f->generation;
	record->source_generation = f->source_generation;
	record->own_generation = f->own_generation;
	record->stat = f->stat;
	record->source_bytes = f->source_bytes;
	record->known = true;
}

#define SWAP(a, b)                                                                                 \
	do {                                                                                       \
		__typeof__(a) swap_was = (a);                                                      \
		(a) = (b);                                                                         \
		(b) = swap_was;                                                                    \
	} while (0)

/* What may differ from one look to the next. Leaves in *f and *capture what is to be freed. */
static void record_update(struct dir_record *record, struct examined *f, struct uns_capture **capture)
{
	record->facts = f->facts;
	record->state_id = f->state_id;
	record->state_whole = f->state_whole;
	if (!f->still_plain)
		SWAP(record->watched, f->watched);
	if (!record->capture_taken)
		SWAP(record->capture, *capture);
	__atomic_store_n(&record->newest_ns, f->newest_ns, __ATOMIC_RELAXED);
	record->checked_ns = uns_now_ns();
}

/* A record is constant once known, but for when it was looked at and what was concluded from it: where
 * what was examined differs, `fresh` replaces it. Returns the one that it is now. */
static struct dir_record *record_renew(struct record_table *t, struct dir_record *record, struct dir_record **fresh,
				 const struct examined *f, struct dir_record **old)
{
	struct dir_record *now = record;

	if (*fresh) {
		*old = table_remove(t, record);
		if (!table_add(t, *fresh))
			return NULL;
		now = UNS_TAKE(*fresh);
		now->refs++;
	}
	if (!now->known)
		record_fill(t, now, f);
	return now;
}

/* -- the same without it -- */

/* Give n references back. */
static void unref(struct record_table *t, struct dir_record *record, unsigned n)
{
	bool last;

	pthread_mutex_lock(t->lock);
	record->refs -= n;
	last = !record->refs;
	pthread_mutex_unlock(t->lock);
	if (last)
		record_free(record);
}

/* Examined: the table is brought up to date, and what was made of an older record is let go of. The
 * caller's reference moves from `record` to *out. */
static int conclude(struct record_table *t, struct dir_record *record, int code, struct examined *f,
		    struct uns_capture *capture, struct dir_record **out, struct uns_err *err)
{
	struct dir_record *fresh = NULL, *now = NULL, *old = NULL;

	if (code == 0 && record->known && !same_as_known(t, record, f) &&
	    !(fresh = record_new(record->path)))
		code = uns_oom(err);
	pthread_mutex_lock(t->lock);
	record->busy = false;
	if (code == 0) {
		now = record_renew(t, record, &fresh, f, &old);
		code = now ? 0 : uns_oom(err);
	}
	if (now)
		record_update(now, f, &capture);
	else if (!old) /* it has gone, or cannot be looked at */
		old = table_remove(t, record);
	pthread_cond_broadcast(t->changed);
	pthread_mutex_unlock(t->lock);

	if (old)
		t->forget(t->ctx, old);
	if (now != record || old)
		unref(t, record, (now != record) + (old != NULL));
	record_free(fresh);
	uns_capture_free(capture);
	uns_arena_fini(&f->watched.arena);
	*out = now;
	return code;
}

static int find_record(struct record_table *t, const char *path, struct dir_record **out,
		      struct uns_err *err)
{
	struct uns_capture *capture = NULL;
	struct examined found;
	struct dir_record *record;
	bool fresh;
	int code;

	pthread_mutex_lock(t->lock);
	record = record_acquire(t, path, &fresh);
	pthread_mutex_unlock(t->lock);
	if (!record)
		return uns_oom(err);
	*out = record;
	if (fresh)
		return 0;
	code = examine(t, record, &found, &capture, err);
	return conclude(t, record, code, &found, capture, out, err);
}

int records_get(struct record_table *t, const char *path, struct dir_record **out, struct uns_err *err)
{
	UNS_TRY(find_record(t, path, out, err));
	if ((*out)->format || (*out)->stat.kind == UNS_KIND_DIR)
		return 0;
	records_put(t, *out);
	*out = NULL;
	return uns_fail(err, -ENOTDIR, "%s is not a directory", path);
}

struct dir_record *records_known(struct record_table *t, const char *path)
{
	struct dir_record *record;

	pthread_mutex_lock(t->lock);
	record = uns_map_get(&t->map, path);
	if (record && !record->busy && is_fresh(t, record) && record->itself_ns &&
	    uns_now_ns() - record->itself_ns < t->recheck_ns)
		record->refs++;
	else
		record = NULL;
	pthread_mutex_unlock(t->lock);
	return record;
}

void records_seen_itself(struct record_table *t, struct dir_record *record)
{
	pthread_mutex_lock(t->lock);
	record->itself_ns = uns_now_ns();
	pthread_mutex_unlock(t->lock);
}

void records_put(struct record_table *t, struct dir_record *record)
{
	if (record)
		unref(t, record, 1);
}

void records_suspect(struct record_table *t, struct dir_record *record)
{
	pthread_mutex_lock(t->lock);
	record->checked_ns = uns_now_ns() - t->recheck_ns;
	pthread_mutex_unlock(t->lock);
}

void records_fini(struct record_table *t)
{
	size_t at = 0;
	void *record;

	while (uns_map_next(&t->map, &at, NULL, &record)) {
		t->forget(t->ctx, record);
		record_free(record);
	}
	uns_map_fini(&t->map);
}

/* `was`: a copy, because another thread may be examining the record. */
static int capture_again(struct record_table *t, const struct dir_record *was, struct uns_capture **out,
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

int records_capture(struct record_table *t, struct dir_record *record, struct uns_capture **out,
		   struct uns_err *err)
{
	struct dir_record was;
	int code;

	pthread_mutex_lock(t->lock);
	was = *record;
	*out = UNS_TAKE(record->capture);
	record->capture_taken = true;
	pthread_mutex_unlock(t->lock);
	if (*out)
		return 0;
	code = capture_again(t, &was, out, err);
	if (code < 0)
		records_suspect(t, record);
	return code;
}

/* -- questions -- */

bool records_unsettled(const struct record_table *t, const struct dir_record *record)
{
	return changed_lately(t, __atomic_load_n(&record->newest_ns, __ATOMIC_RELAXED));
}

bool records_in_the_making(const struct record_table *t, const struct dir_record *record)
{
	return record->begun && records_unsettled(t, record);
}

bool records_hide(const struct record_table *t, const char *path)
{
	return t->hidden && *t->hidden && uns_path_within(path, t->hidden);
}
